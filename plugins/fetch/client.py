"""One HTTP exchange with a host that may be talked to.

The name is looked up once, every address of it is judged (`address.py`, the gateway's own
rule), and the connection goes to an address that was judged. No proxy of the environment is
asked, a redirect is a new judgement, and one clock runs over all of it.
"""

from __future__ import annotations

import socket
import time

import address
from alarm import Alarm
from protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence
    from http.client import HTTPConnection, HTTPResponse
    from typing import Any

REDIRECTS = (301, 302, 303, 307, 308)
LONGEST_LOOKUP = 10.0
CHUNK = 64 * 1024
KEPT_ELSEWHERE = frozenset({"accept", "accept-encoding", "accept-language", "user-agent"})
"""Headers that may be shown to another host than the configured one."""


class Trouble(Failure):
    """The exchange failed; `sent` says whether the server may have seen the request."""

    def __init__(self, message: str, *, sent: bool, retry: bool = True) -> None:
        super().__init__(message, retry=retry)
        self.sent = sent


class Reply:
    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.body = status, body
        self.headers = {name.lower(): value for name, value in headers.items()}

    def header(self, name: str) -> str | None:
        """A header's value, as far as it can be kept."""
        value = self.headers.get(name)
        return value if value is not None and len(value) <= 1000 and value.isprintable() else None


class Client:
    """How requests are made; the same for every hop of one."""

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
        """The last reply of a request and the redirects it is sent on. Raises `Failure`."""
        from urllib.parse import urljoin

        give_up = time.monotonic() + seconds
        first = target = self._judged(url)
        for _ in range(self._max_redirects + 1):
            reply = self._hop(target, method, headers, body, give_up)
            location = reply.headers.get("location")
            follows = self._max_redirects and method == "GET" and location
            if reply.status not in REDIRECTS or not follows:
                return reply
            url = urljoin(url, location)
            target = self._judged(url)
            if (target.secure, target.host, target.port) != (first.secure, first.host, first.port):
                headers = {k: v for k, v in headers.items() if k.lower() in KEPT_ELSEWHERE}
        raise Failure(f"{target.host} redirects more than {self._max_redirects} times", retry=False)

    def _judged(self, url: str) -> address.ParsedUrl:
        try:
            return address.parse_url(url, self._networks)
        except address.Forbidden as error:
            raise Failure(str(error), retry=False) from None

    def _hop(
        self,
        target: address.ParsedUrl,
        method: str,
        headers: Mapping[str, str],
        body: bytes | None,
        give_up: float,
    ) -> Reply:
        addresses = self._addresses(target, give_up)
        with Alarm(_left(give_up, target.host)):
            connection = self._connected(target, addresses, give_up)
            exchange = _Exchange(connection, target.host, self._max_body)
            try:
                sent = {"Host": target.authority, **headers}
                return exchange.run(method, target.path, sent, body)
            finally:
                connection.close()

    def _addresses(self, target: address.ParsedUrl, give_up: float) -> Sequence[str]:
        found = [target.host] if target.literal else _looked_up(target, give_up)
        try:
            return address.check_addresses(target, found, self._networks, plain=self._plain)
        except address.Forbidden as error:
            raise Failure(str(error), retry=False) from None

    def _connected(
        self, target: address.ParsedUrl, addresses: Sequence[str], give_up: float
    ) -> HTTPConnection:
        import http.client

        trouble = "no address"
        for one in addresses:
            try:
                plain = socket.create_connection((one, target.port), _left(give_up, target.host))
            except OSError as error:
                trouble = error.strerror or type(error).__name__
                continue
            connection = http.client.HTTPConnection(target.host, target.port)
            connection.sock = self._secured(plain, target) if target.secure else plain
            return connection
        raise Trouble(f"{target.host} cannot be reached: {trouble}", sent=False)

    def _secured(self, plain: socket.socket, target: address.ParsedUrl) -> ssl.SSLSocket:
        import ssl

        try:
            context = ssl.create_default_context(cafile=self._ca_file)
            return context.wrap_socket(plain, server_hostname=target.host)
        except ssl.SSLCertVerificationError as error:
            plain.close()
            reason = f"{target.host} is not who it says: {error.verify_message}"
            raise Trouble(reason, sent=False, retry=False) from None
        except OSError as error:
            plain.close()
            named = error.strerror or type(error).__name__
            raise Trouble(f"{target.host}: TLS failed: {named}", sent=False) from None


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
            raise Trouble(f"{self._host} did not answer in time", sent=True) from None
        except OSError as error:
            named = error.strerror or type(error).__name__
            raise Trouble(f"{self._host} broke off: {named}", sent=True) from None
        except (http.client.HTTPException, ValueError) as error:
            named = type(error).__name__
            raise Trouble(f"{self._host} does not speak HTTP: {named}", sent=True) from None

    def _read(self, response: HTTPResponse) -> Reply:
        """The reply; of one that tells of a failure as much of its body as can be had."""
        failed = response.status >= 400
        plain = response.headers.get("Content-Encoding", "identity").lower() == "identity"
        if not plain and not failed:
            raise Trouble(f"{self._host} sent a compressed body unasked", sent=True, retry=False)
        body = b""
        while plain and len(body) <= self._max_body and (part := response.read(CHUNK)):
            body += part
        if len(body) > self._max_body and not failed:
            reason = f"{self._host} sent more than max_body ({self._max_body} bytes)"
            raise Trouble(reason, sent=True, retry=False)
        return Reply(response.status, dict(response.headers), body[: self._max_body])


def _left(give_up: float, host: str) -> float:
    left = give_up - time.monotonic()
    if left <= 0:
        raise Trouble(f"{host} did not answer in time", sent=False)
    return left


def _looked_up(target: address.ParsedUrl, give_up: float) -> list[str]:
    """Every address of the name. In a thread, for no signal interrupts a resolver."""
    import threading

    found: list[Any] = []
    trouble = ["the resolver does not answer"]

    def look() -> None:
        try:
            found.extend(socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            trouble[0] = getattr(error, "strerror", None) or type(error).__name__

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(min(LONGEST_LOOKUP, _left(give_up, target.host)))
    if thread.is_alive() or not found:
        reason = f"{target.host} has no address that could be found: {trouble[0]}"
        raise Trouble(reason, sent=False)
    return list(dict.fromkeys(str(info[4][0]) for info in found))
