"""HTTP requests to allowed hosts only.

The name is resolved once, every address is checked (`ssrf.py`, the rule of the gateway), and the
connection goes to a checked address. Proxies of the environment are ignored, redirects are checked
like the first URL, and one deadline applies to all of it.
"""

from __future__ import annotations

import socket
import time

import ssrf
from deadline import Deadline
from protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from http.client import HTTPConnection, HTTPResponse
    from typing import Any

REDIRECTS = (301, 302, 303, 307, 308)
MAX_LOOKUP_SECONDS = 10.0
CHUNK = 64 * 1024
KEPT_ELSEWHERE = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that are sent to another host after a redirect."""


class ExchangeError(Failure):
    """The request failed; `sent` is whether the server may have received it."""

    def __init__(self, message: str, *, sent: bool, retry: bool = True) -> None:
        super().__init__(message, retry=retry)
        self.sent = sent


class Reply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    def header(self, name: str) -> str | None:
        """The value of a header; None if it is absent, too long or not printable."""
        value = self.headers.get(name)
        return value if value is not None and len(value) <= 1000 and value.isprintable() else None


class Client:
    """The settings of requests."""

    def __init__(
        self,
        *,
        networks: Sequence[str],
        plain: bool,
        max_body: int,
        max_redirects: int,
        ca_file: str | None,
    ) -> None:
        self._networks, self._plain = networks, plain
        self._max_body, self._max_redirects = max_body, max_redirects
        self._ca_file = ca_file

    def exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None, seconds: float
    ) -> Reply:
        """The last reply of a request after following redirects. Raises `Failure`."""
        from urllib.parse import urljoin

        deadline = time.monotonic() + seconds
        first = target = self._check_url(url)
        for _ in range(self._max_redirects + 1):
            reply = self._send_once(target, method, headers, body, deadline)
            location = reply.headers.get("location")
            follows = self._max_redirects and method == "GET" and location
            if reply.status not in REDIRECTS or not follows:
                return reply
            url = urljoin(url, location)
            target = self._check_url(url)
            if (target.secure, target.host, target.port) != (first.secure, first.host, first.port):
                headers = {k: v for k, v in headers.items() if k.lower() in KEPT_ELSEWHERE}
        raise Failure(f"{target.host} redirects more than {self._max_redirects} times", retry=False)

    def _check_url(self, url: str) -> ssrf.ParsedUrl:
        try:
            return ssrf.parse_url(url, self._networks)
        except ssrf.Forbidden as error:
            raise Failure(str(error), retry=False) from None

    def _send_once(
        self,
        target: ssrf.ParsedUrl,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        deadline: float,
    ) -> Reply:
        addresses = self._resolve(target, deadline)
        started = False
        try:
            with Deadline(_get_remaining(deadline, target.host)):
                connection = self._connect(target, addresses, deadline)
                exchange = _Exchange(connection, target.host, self._max_body)
                started = True
                try:
                    sent = {"Host": target.authority, **headers}
                    return exchange.run(method, target.path, sent, body)
                finally:
                    connection.close()
        except TimeoutError:
            raise ExchangeError(f"{target.host} did not reply in time", sent=started) from None

    def _resolve(self, target: ssrf.ParsedUrl, deadline: float) -> Sequence[str]:
        found = [target.host] if target.literal else _look_up(target, deadline)
        try:
            return ssrf.check_addresses(
                target, found, self._networks, plain=self._plain, setting="allowed_networks"
            )
        except ssrf.Forbidden as error:
            raise Failure(str(error), retry=False) from None

    def _connect(
        self, target: ssrf.ParsedUrl, addresses: Sequence[str], deadline: float
    ) -> HTTPConnection:
        import http.client

        reason = "it has no address"
        for one in addresses:
            try:
                plain = socket.create_connection(
                    (one, target.port), _get_remaining(deadline, target.host)
                )
            except OSError as error:
                reason = error.strerror or type(error).__name__
                continue
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = self._start_tls(plain, target) if target.secure else plain
            return connection
        raise ExchangeError(f"{target.host} cannot be reached: {reason}", sent=False)

    def _start_tls(self, plain: socket.socket, target: ssrf.ParsedUrl) -> ssl.SSLSocket:
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._ca_file)
            return context.wrap_socket(plain, server_hostname=target.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            reason = f"the certificate of {target.host} is not valid: {error.verify_message}"
            raise ExchangeError(reason, sent=False, retry=False) from None
        except OSError as error:
            plain.close()
            named = error.strerror or type(error).__name__
            raise ExchangeError(f"{target.host}: TLS failed: {named}", sent=False) from None


class _Exchange:
    """A request and its reply on one connection."""

    def __init__(self, connection: HTTPConnection, host: str, max_body: int) -> None:
        self._connection, self._host, self._max_body = connection, host, max_body

    def run(self, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        import http.client

        try:
            self._connection.request(method, path, body, dict(headers))
            return self._read(self._connection.getresponse())
        except TimeoutError:
            raise ExchangeError(f"{self._host} did not reply in time", sent=True) from None
        except OSError as error:
            named = error.strerror or type(error).__name__
            raise ExchangeError(f"{self._host} closed the connection: {named}", sent=True) from None
        except (http.client.HTTPException, ValueError) as error:
            named = type(error).__name__
            raise ExchangeError(
                f"{self._host} sent an invalid HTTP response: {named}", sent=True
            ) from None

    def _read(self, response: HTTPResponse) -> Reply:
        """The reply; the body of an error is truncated instead of rejected."""
        failed = response.status >= 400
        plain = response.headers.get("Content-Encoding", "identity").lower() == "identity"
        if not plain and not failed:
            raise ExchangeError(
                f"{self._host} sent a compressed body, which was not requested",
                sent=True,
                retry=False,
            )
        body = b""
        while plain and len(body) <= self._max_body and (part := response.read(CHUNK)):
            body += part
        if len(body) > self._max_body and not failed:
            reason = f"{self._host} sent more than max_body ({self._max_body} bytes)"
            raise ExchangeError(reason, sent=True, retry=False)
        return Reply(response.status, dict(response.headers), body[: self._max_body])


def _get_remaining(deadline: float, host: str) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise ExchangeError(f"{host} did not reply in time", sent=False)
    return left


def _look_up(target: ssrf.ParsedUrl, deadline: float) -> list[str]:
    """All addresses of a name. In a thread, because signals do not interrupt the resolver."""
    import threading

    found: list[Any] = []
    reason = ["the resolver did not reply"]

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            reason[0] = getattr(error, "strerror", None) or type(error).__name__

    thread = threading.Thread(target=resolve, daemon=True)
    thread.start()
    thread.join(min(MAX_LOOKUP_SECONDS, _get_remaining(deadline, target.host)))
    if thread.is_alive() or not found:
        raise ExchangeError(f"{target.host} cannot be resolved: {reason[0]}", sent=False)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
