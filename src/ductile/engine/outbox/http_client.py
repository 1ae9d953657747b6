"""The HTTP client of the outbox: one POST to a checked address, bounded in time and size.

It uses no proxy of the environment and follows no redirect. A host is looked up once; all of its
addresses are checked, and one of these is connected to.
"""

from __future__ import annotations

import io
import queue
import re
import socket
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import ductile
from ductile.clock import Clock
from ductile.core.delivery.ssrf import Forbidden, ParsedUrl, check_addresses, parse_url
from ductile.engine.outbox.policy import OutboundRequest, SendResult

if TYPE_CHECKING:
    import ssl
    from http.client import HTTPResponse

MAX_BODY = 64 * 1024
MAX_HEAD = 64 * 1024
MAX_INTERIM = 8
"""Responses with status 1xx before the final one."""
MAX_LOOKUPS = 32
"""Concurrent DNS lookups. The resolver cannot be interrupted: a hanging lookup keeps its thread."""
OWN_HEADERS = frozenset({"host", "content-length", "connection", "transfer-encoding"})
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t -~]*")

Remaining = Callable[[], float]
"""The remaining seconds; raises `TimeoutError` if there are none."""
Lookup = Callable[[str, int, Remaining], list[str]]
"""From host and port to addresses."""
Connect = Callable[[str, int, float], socket.socket]
"""From address, port and timeout to a connection."""

_lookups = threading.BoundedSemaphore(MAX_LOOKUPS)


def look_up(host: str, port: int, remaining: Remaining) -> list[str]:
    """The addresses of a name; `TimeoutError` if that takes too long or cannot start."""
    found: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()
    permits = _lookups

    def resolve() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
        except (OSError, ValueError) as error:
            found.put(error)
        finally:
            permits.release()

    if not permits.acquire(timeout=remaining()):
        raise TimeoutError
    try:
        threading.Thread(target=resolve, name="dns-lookup", daemon=True).start()
    except RuntimeError:
        # There is no thread that would release the permit.
        permits.release()
        raise TimeoutError from None
    try:
        result = found.get(timeout=remaining())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(result, Exception):
        raise _UnknownHost from result
    return result


def connect(address: str, port: int, seconds: float) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect((address, port))
    except BaseException:
        connection.close()
        raise
    return connection


@cache
def _load_trust() -> ssl.SSLContext:
    """The certificates of the system or of `SSL_CERT_FILE`; loaded once, when first needed."""
    import ssl

    context = ssl.create_default_context()
    # Some systems' OpenSSL allows older versions.
    context.minimum_version = max(context.minimum_version, ssl.TLSVersion.TLSv1_2)
    return context


class _UnknownHost(OSError):
    """The name is unknown, or its name server does not respond."""


class _InvalidResponse(OSError):
    """The response is not HTTP."""


class HttpClient:
    """Sends requests, each within its own deadline. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        *,
        look_up: Lookup = look_up,
        connect: Connect = connect,
        trust: Callable[[], ssl.SSLContext] = _load_trust,
    ) -> None:
        self._clock, self._look_up, self._connect, self._trust = clock, look_up, connect, trust

    def __call__(self, request: OutboundRequest) -> SendResult:
        """The result; never raises for an error of the receiver.

        The status decides as soon as it arrives: an incomplete or slow body does not change the
        result, and is kept as far as it arrived by the deadline.
        """
        deadline = self._clock.monotonic() + request.timeout
        try:
            return self._send(request, deadline)
        except Forbidden as refusal:
            return SendResult(None, f"not sent: {refusal}")
        except OSError as error:
            return SendResult(None, _describe_error(error, request.timeout))

    def _send(self, request: OutboundRequest, deadline: float) -> SendResult:
        target = parse_url(request.url, request.networks)
        encoded = _encode_request(target, request)
        addresses = [target.host]
        if not target.literal:
            addresses = self._look_up(target.host, target.port, lambda: self._remaining(deadline))
        allowed = check_addresses(target, addresses, request.networks, plain=request.plain_http)
        connection = self._connect_any(allowed, target.port, deadline)
        try:
            if target.secure:
                connection.settimeout(self._remaining(deadline))
                connection = self._trust().wrap_socket(connection, server_hostname=target.host)
            stream = _BoundedStream(connection, lambda: self._remaining(deadline))
            return _read_response(stream, stream.send(encoded))
        finally:
            connection.close()

    def _connect_any(self, addresses: tuple[str, ...], port: int, deadline: float) -> socket.socket:
        """Connect to the first address that responds; each gets its share of the remaining time."""
        failure: OSError = TimeoutError()
        for index, address in enumerate(addresses):
            try:
                share = self._remaining(deadline) / (len(addresses) - index)
                return self._connect(address, port, share)
            except OSError as error:
                failure = error
        raise failure

    def _remaining(self, deadline: float) -> float:
        seconds = deadline - self._clock.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


def _encode_request(target: ParsedUrl, request: OutboundRequest) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"Content-Length: {len(request.body)}",
        "Connection: close",
    ]
    headers = {"User-Agent": f"ductile/{ductile.__version__}", "Accept": "*/*", **request.headers}
    for name, value in headers.items():
        if name.lower() in OWN_HEADERS or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise Forbidden(f"the header {name!r} is not allowed")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + request.body


class _BoundedStream:
    """A connection with one deadline for all operations and a limit on the bytes read."""

    def __init__(self, connection: socket.socket, remaining: Remaining) -> None:
        self._connection, self._remaining = connection, remaining
        self._allowed = MAX_HEAD + MAX_BODY
        self._file = _SharedFile(_SocketReader(self.receive))

    def send(self, request: bytes) -> OSError | None:
        """The error if the receiver did not accept all of it; it may have responded anyway."""
        unsent = memoryview(request)
        while unsent:
            self._connection.settimeout(self._remaining())
            try:
                unsent = unsent[self._connection.send(unsent) :]
            except TimeoutError:
                raise
            except OSError as error:
                return error
        return None

    def receive(self, buffer: memoryview) -> int:
        """The number of bytes read; 0, as at the end, once the limit is reached."""
        if self._allowed == 0:
            return 0
        self._connection.settimeout(self._remaining())
        count = self._connection.recv_into(buffer, min(len(buffer), self._allowed))
        self._allowed -= count
        return count

    @property
    def is_exhausted(self) -> bool:
        return self._allowed == 0

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        """The file that `http.client` reads from: the same for every response."""
        return self._file


class _SocketReader(io.RawIOBase):
    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(memoryview(buffer))


class _SharedFile(io.BufferedReader):
    """Read by several responses in turn: closing a response does not close it."""

    def close(self) -> None:
        """`HttpClient` closes the connection."""


def _read_response(stream: _BoundedStream, send_error: OSError | None) -> SendResult:
    from http.client import HTTPException, HTTPResponse

    for _ in range(MAX_INTERIM):
        with HTTPResponse(stream, method="POST") as response:  # type: ignore[arg-type]
            try:
                response.begin()
            except (HTTPException, OSError, ValueError) as error:
                cause = send_error or error
                if stream.is_exhausted or not isinstance(cause, OSError):
                    raise _InvalidResponse from error
                raise cause from None
            if response.status >= 200:
                error_text = describe_status(response.status)
                return SendResult(response.status, error_text, _read_body(response))
    raise _InvalidResponse


def _read_body(response: HTTPResponse) -> bytes:
    """At most `MAX_BODY`, and as much as arrived."""
    from http.client import HTTPException, IncompleteRead

    try:
        return response.read(MAX_BODY)
    except IncompleteRead as incomplete:
        return incomplete.partial[:MAX_BODY]
    except (HTTPException, OSError, ValueError):
        return b""


def describe_status(status: int) -> str | None:
    """The error text of a status, without any text of the response; None for success."""
    from http import HTTPStatus

    if 200 <= status < 300:
        return None
    known = {member.value: member.phrase for member in HTTPStatus}
    text = f"HTTP {status} {known.get(status, '')}".rstrip()
    return f"{text}; redirects are not followed" if 300 <= status < 400 else text


def _describe_error(error: OSError, seconds: float) -> str:
    """Why there was no response, without any text of the receiver."""
    import ssl

    if isinstance(error, TimeoutError):
        return f"no response within {seconds:g} s"
    if isinstance(error, _UnknownHost):
        return "the URL's host is unknown"
    if isinstance(error, _InvalidResponse):
        return "the response is not HTTP or too large"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "the TLS handshake failed"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, ConnectionError):
        return "the connection was closed before a response"
    return f"the connection failed: {error.strerror or type(error).__name__}"
