"""HTTP for plugins: bounded in time and size, never redirected, silent about secrets.

A `Site` is one provider's address and the time that this run still has. What it raises are
`Failure`s whose text names the host and the kind of trouble, never a query, a header or a
body: any of those may hold a token. A caller that knows which may quote a `Reply`.
`http.client` is imported when the first request is made.
"""

from __future__ import annotations

from protocol import Failure, Misconfigured

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from http.client import HTTPConnection
    from typing import Any

LARGEST_BODY = 8 * 1024 * 1024
LONGEST_REQUEST = 20.0
RESERVE = 3.0
"""Seconds kept back for the answer: a run that is killed loses the tokens it was given."""
LONGEST_PAUSE = 10.0
"""A wait that is longer is left to a later run: this one holds a worker."""
LONGEST_RETRY = 86_400.0
PAUSES = (0.5, 2.0)
TRANSIENT = (408, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Busy(Failure):
    """The provider asks us to come back in `seconds`."""

    def __init__(self, host: str, seconds: float) -> None:
        self.seconds = min(max(seconds, 1.0), LONGEST_RETRY)
        super().__init__(f"{host} asks us to wait {self.seconds:.0f} s")


class Reply:
    """What came back, whatever its status: only the caller knows what that means."""

    def __init__(self, host: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.host, self.status, self.body = host, status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises `Failure` where it is none."""
        from document import parse

        try:
            document = parse(self.body)
        except ValueError:
            raise Failure(f"{self.host} answered {self.status} with no JSON") from None
        if not isinstance(document, dict):
            raise Failure(f"{self.host} answered {self.status} with no JSON object")
        return document

    def quoted(self, secrets: Iterable[str]) -> str:
        """The beginning of the body of a refusal, without these secrets.

        Nothing where it is no refusal: such a body may hold a token that nobody knows yet.
        """
        from quoting import excerpt

        return excerpt(self.body, secrets) if self.status >= 400 else ""

    def retry_after(self, default: float) -> float:
        """Seconds from the Retry-After header, in either of its forms."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text[:9]), LONGEST_RETRY)
        moment = _moment(text)
        if moment is None:
            return default
        # Both by the server's clock, so that ours does not matter.
        from time import time

        return min(max(moment - self.moment(time()), 0.0), LONGEST_RETRY)

    def moment(self, default: float) -> float:
        """When the server answered, by its own clock, in Unix seconds."""
        return _moment(self.headers.get("date", "")) or default


class Site:
    """One provider's address.

    A short Retry-After is waited out. Other trouble is tried again only where `insist` is
    set, because the gateway cannot try this run again without losing what it has gained.
    """

    def __init__(self, base_url: str, remaining: Callable[[], float], *, agent: str) -> None:
        self._secure, self.host, self._port, self._path = _address(base_url)
        self._remaining = remaining
        self._agent = agent
        self.insist = False

    def send(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        form: Mapping[str, Any] | None = None,
        document: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """One request and its reply, of any status. Raises `Failure` where none came."""
        import json
        from time import sleep
        from urllib.parse import urlencode

        target = f"{self._path}{path}" + (f"?{urlencode(query)}" if query else "")
        body = None if form is None else urlencode(form).encode()
        sent = {"Accept": "application/json", "User-Agent": self._agent, **(headers or {})}
        if body is not None:
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        elif document is not None:
            body = json.dumps(document).encode()
            sent["Content-Type"] = "application/json; charset=utf-8"
        for pause in PAUSES:
            outcome = self._outcome(method, target, body, sent)
            wait = self._wait(outcome, pause)
            if wait is None:
                break
            sleep(wait)
        else:
            outcome = self._outcome(method, target, body, sent)
        if isinstance(outcome, Failure):
            raise outcome
        return outcome

    def _wait(self, outcome: Reply | Failure, pause: float) -> float | None:
        """Seconds after which to try again; None where this outcome is to stand."""
        if isinstance(outcome, Reply) and "retry-after" in outcome.headers:
            wait = outcome.retry_after(pause) if outcome.status in (429, 503) else None
        elif isinstance(outcome, Reply) and outcome.status not in TRANSIENT:
            wait = None
        else:
            wait = pause if self.insist else None
        if wait is None or wait > LONGEST_PAUSE or wait + 2 * RESERVE > self._remaining():
            return None
        return wait

    def _outcome(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply | Failure:
        import http.client

        from alarm import Alarm

        seconds = min(LONGEST_REQUEST, self._remaining() - RESERVE)
        if seconds <= 0:
            return Failure("no time is left for another request")
        connection = self._connection(seconds)
        try:
            with Alarm(seconds):
                connection.request(method, target, body, dict(headers))
                response = connection.getresponse()
                read = response.read(LARGEST_BODY + 1)
        except TimeoutError:
            return Failure(f"{self.host} did not answer in {seconds:.0f} s")
        except OSError as error:
            return Failure(f"{self.host} cannot be reached: {error.strerror or _named(error)}")
        except (http.client.HTTPException, ValueError) as error:
            return Failure(f"{self.host} and we do not understand each other: {_named(error)}")
        finally:
            connection.close()
        if len(read) > LARGEST_BODY:
            return Failure(f"{self.host} answered with more than {LARGEST_BODY // 1024**2} MiB")
        return Reply(self.host, response.status, dict(response.headers), read)

    def _connection(self, seconds: float) -> HTTPConnection:
        import http.client

        if not self._secure:
            return http.client.HTTPConnection(self.host, self._port, timeout=seconds)
        import ssl

        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self.host, self._port, timeout=seconds, context=context)


def _address(base_url: str) -> tuple[bool, str, int | None, str]:
    """Scheme, host, port and path; credentials go over TLS, or stay on this machine."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
    except (ValueError, AttributeError):
        raise Misconfigured("a configured URL cannot be read") from None
    local = parts.scheme == "http" and host in _LOOPBACK
    if not host or parts.username or parts.query or not (parts.scheme == "https" or local):
        raise Misconfigured(
            "a configured URL must be https://host[:port][/path], or http:// on loopback"
        )
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


def _moment(text: str) -> float | None:
    """Unix seconds of an HTTP date."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, IndexError, OverflowError):
        return None


def _named(error: Exception) -> str:
    return type(error).__name__
