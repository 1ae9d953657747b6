"""HTTP client for the APIs of providers: limited in time and size, without redirects.

Errors are `Failure`s whose message has the host and the kind of error, but no query, header or
body, because each of them may contain a token. A caller that knows the secrets may quote a
`Reply`. `http.client` is imported with the first request.
"""

from __future__ import annotations

from protocol import ConfigError, Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from http.client import HTTPConnection
    from typing import Any

MAX_BODY = 8 * 1024 * 1024
MAX_REQUEST_SECONDS = 20.0
RESERVE = 3.0
"""Seconds reserved for the response: a run that is killed loses its new tokens."""
MAX_PAUSE = 10.0
"""A longer wait is left to a later run, because this one occupies a worker."""
MAX_RETRY_AFTER = 86_400.0
PAUSES = (0.5, 2.0)
TRANSIENT = (408, 500, 502, 503, 504)
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class RateLimited(Failure):
    """The provider asks to wait for `seconds`."""

    def __init__(self, host: str, seconds: float) -> None:
        self.seconds = min(max(seconds, 1.0), MAX_RETRY_AFTER)
        super().__init__(f"rate limited by {host} for {self.seconds:.0f} s")


class Reply:
    """A reply of any status; the caller decides what it means."""

    def __init__(self, host: str, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.host, self.status, self.body = host, status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises `Failure` if it is not one."""
        from strict_json import parse

        try:
            document = parse(self.body)
        except ValueError:
            raise Failure(
                f"{self.host} returned status {self.status} with a body that is not valid JSON"
            ) from None
        if not isinstance(document, dict):
            raise Failure(
                f"{self.host} returned status {self.status} with a body that is not a JSON object"
            )
        return document

    def quote(self, secrets: Iterable[str]) -> str:
        """The start of the body of an error, without these secrets.

        Empty if the status is below 400: such a body may contain a new token.
        """
        from redact import quote_start

        return quote_start(self.body, secrets) if self.status >= 400 else ""

    def retry_after(self, default: float) -> float:
        """Seconds from the Retry-After header, in either of its forms."""
        text = self.headers.get("retry-after", "").strip()
        if text.isascii() and text.isdigit():
            return min(float(text[:9]), MAX_RETRY_AFTER)
        date = _parse_date(text)
        if date is None:
            return default
        # Both times are from the server's clock, so that ours does not matter.
        from time import time

        return min(max(date - self.get_time(time()), 0.0), MAX_RETRY_AFTER)

    def get_time(self, default: float) -> float:
        """The time of the reply by the server's clock, in Unix seconds."""
        return _parse_date(self.headers.get("date", "")) or default


class ApiClient:
    """A client for one provider.

    A short Retry-After is waited for. Other errors are retried only if `insist` is set, for runs
    that the gateway cannot retry without losing new tokens.
    """

    def __init__(self, base_url: str, remaining: Callable[[], float], *, agent: str) -> None:
        self._secure, self.host, self._port, self._path = _parse_url(base_url)
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
        """Send a request and return the reply of any status. Raises `Failure` without a reply."""
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
            outcome = self._send_once(method, target, body, sent)
            wait = self._choose_wait(outcome, pause)
            if wait is None:
                break
            sleep(wait)
        else:
            outcome = self._send_once(method, target, body, sent)
        if isinstance(outcome, Failure):
            raise outcome
        return outcome

    def _choose_wait(self, outcome: Reply | Failure, pause: float) -> float | None:
        """Seconds after which to retry; None if this outcome is final."""
        if isinstance(outcome, Reply) and "retry-after" in outcome.headers:
            wait = outcome.retry_after(pause) if outcome.status in (429, 503) else None
        elif isinstance(outcome, Reply) and outcome.status not in TRANSIENT:
            wait = None
        else:
            wait = pause if self.insist else None
        if wait is None or wait > MAX_PAUSE or wait + 2 * RESERVE > self._remaining():
            return None
        return wait

    def _send_once(
        self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> Reply | Failure:
        import http.client

        from deadline import Deadline

        seconds = min(MAX_REQUEST_SECONDS, self._remaining() - RESERVE)
        if seconds <= 0:
            return Failure("there is no time left for another request")
        connection = self._connect(seconds)
        try:
            with Deadline(seconds):
                connection.request(method, target, body, dict(headers))
                response = connection.getresponse()
                read = response.read(MAX_BODY + 1)
        except TimeoutError:
            return Failure(f"{self.host} did not reply within {seconds:.0f} s")
        except OSError as error:
            return Failure(f"{self.host} cannot be reached: {error.strerror or _name_error(error)}")
        except (http.client.HTTPException, ValueError) as error:
            return Failure(f"{self.host} sent an invalid HTTP response: {_name_error(error)}")
        finally:
            connection.close()
        if len(read) > MAX_BODY:
            return Failure(f"{self.host} sent more than {MAX_BODY // 1024**2} MiB")
        return Reply(self.host, response.status, dict(response.headers), read)

    def _connect(self, seconds: float) -> HTTPConnection:
        import http.client

        if not self._secure:
            return http.client.HTTPConnection(self.host, self._port, timeout=seconds)
        import ssl

        context = ssl.create_default_context()
        return http.client.HTTPSConnection(self.host, self._port, timeout=seconds, context=context)


def _parse_url(base_url: str) -> tuple[bool, str, int | None, str]:
    """Scheme, host, port and path of a URL that is HTTPS or on loopback."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(base_url)
        host, port = parts.hostname or "", parts.port
    except (ValueError, AttributeError):
        raise ConfigError("a configured URL is not valid") from None
    local = parts.scheme == "http" and host in _LOOPBACK
    if not host or parts.username or parts.query or not (parts.scheme == "https" or local):
        raise ConfigError(
            "a configured URL must be https://host[:port][/path], or http:// for loopback"
        )
    return parts.scheme == "https", host, port, parts.path.rstrip("/")


def _parse_date(text: str) -> float | None:
    """Unix seconds of an HTTP date."""
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, IndexError, OverflowError):
        return None


def _name_error(error: Exception) -> str:
    return type(error).__name__
