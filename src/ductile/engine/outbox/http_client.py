"""Sending one parcel to an address of others: checked, bounded in time and size.

Nothing of the environment is asked (no proxies), no redirect is followed. A host is looked up
once; every address that it has is checked, and one of those is connected to.
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

LARGEST_ANSWER = 64 * 1024
LARGEST_HEAD = 64 * 1024
MOST_INTERIM = 8
"""Answers of the hundreds that may come before the one that counts."""
MOST_LOOK_UPS = 32
"""The resolver cannot be told to stop: one that hangs keeps its thread for a while."""
OWN_HEADERS = frozenset({"host", "content-length", "connection", "transfer-encoding"})
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t -~]*")

Left = Callable[[], float]
"""The seconds that are left; `TimeoutError` where none are."""
LookUp = Callable[[str, int, Left], list[str]]
"""From host and port to addresses."""
Connect = Callable[[str, int, float], socket.socket]
"""From address, port and seconds to a connection."""

_look_ups = threading.BoundedSemaphore(MOST_LOOK_UPS)


def look_up(host: str, port: int, left: Left) -> list[str]:
    """The addresses of a name; `TimeoutError` where that takes too long, or cannot begin."""
    found: queue.SimpleQueue[list[str] | Exception] = queue.SimpleQueue()
    places = _look_ups

    def ask() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.put(list(dict.fromkeys(str(row[4][0]) for row in rows)))
        except (OSError, ValueError) as error:
            found.put(error)
        finally:
            places.release()

    if not places.acquire(timeout=left()):
        raise TimeoutError
    try:
        threading.Thread(target=ask, name="look-up", daemon=True).start()
    except RuntimeError:
        # No thread is to be had, and nobody else would give the place back.
        places.release()
        raise TimeoutError from None
    try:
        answer = found.get(timeout=left())
    except queue.Empty:
        raise TimeoutError from None
    if isinstance(answer, Exception):
        raise _NoAddress from answer
    return answer


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
def _trust() -> ssl.SSLContext:
    """What the system trusts, or `SSL_CERT_FILE`; read once, when it is first needed."""
    import ssl

    return ssl.create_default_context()


class _NoAddress(OSError):
    """The name is not known, or nobody who knows it answers."""


class _Unreadable(OSError):
    """What came back is no answer in HTTP."""


class Sender:
    """Sends parcels, each within its own deadline. Thread-safe."""

    def __init__(
        self,
        clock: Clock,
        *,
        look_up: LookUp = look_up,
        connect: Connect = connect,
        trust: Callable[[], ssl.SSLContext] = _trust,
    ) -> None:
        self._clock, self._look_up, self._connect, self._trust = clock, look_up, connect, trust

    def __call__(self, parcel: OutboundRequest) -> SendResult:
        """What became of it; never raises for anything that is done at the other end.

        The status decides as soon as it is there: a body that is cut off or drips changes
        nothing any more, and what came of it by the deadline is what there is.
        """
        deadline = self._clock.monotonic() + parcel.timeout
        try:
            return self._send(parcel, deadline)
        except Forbidden as refusal:
            return SendResult(None, f"not sent: {refusal}")
        except OSError as error:
            return SendResult(None, reason(error, parcel.timeout))

    def _send(self, parcel: OutboundRequest, deadline: float) -> SendResult:
        target = parse_url(parcel.url, parcel.networks)
        request = _request(target, parcel)
        addresses = [target.host]
        if not target.literal:
            addresses = self._look_up(target.host, target.port, lambda: self._left(deadline))
        allowed = check_addresses(target, addresses, parcel.networks, plain=parcel.plain_http)
        connection = self._reach(allowed, target.port, deadline)
        try:
            if target.secure:
                connection.settimeout(self._left(deadline))
                connection = self._trust().wrap_socket(connection, server_hostname=target.host)
            wire = _Wire(connection, lambda: self._left(deadline))
            return _answer(wire, wire.send(request))
        finally:
            connection.close()

    def _reach(self, addresses: tuple[str, ...], port: int, deadline: float) -> socket.socket:
        """The first that answers; one that is silent leaves time for those after it."""
        failure: OSError = TimeoutError()
        for index, address in enumerate(addresses):
            try:
                share = self._left(deadline) / (len(addresses) - index)
                return self._connect(address, port, share)
            except OSError as error:
                failure = error
        raise failure

    def _left(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def _request(target: ParsedUrl, parcel: OutboundRequest) -> bytes:
    lines = [
        f"POST {target.path} HTTP/1.1",
        f"Host: {target.authority}",
        f"Content-Length: {len(parcel.body)}",
        "Connection: close",
    ]
    given = {"User-Agent": f"ductile/{ductile.__version__}", "Accept": "*/*", **parcel.headers}
    for name, value in given.items():
        if name.lower() in OWN_HEADERS or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise Forbidden(f"the header {name!r} cannot be sent")
        lines.append(f"{name}: {value}")
    return "\r\n".join([*lines, "", ""]).encode("ascii") + parcel.body


class _Wire:
    """A connection with one deadline for all that is done with it, and so much to be read."""

    def __init__(self, connection: socket.socket, left: Left) -> None:
        self._connection, self._left = connection, left
        self._allowed = LARGEST_HEAD + LARGEST_ANSWER
        self._file = _SharedFile(_Reader(self.receive))

    def send(self, request: bytes) -> OSError | None:
        """The error where the other side would not have all of it; it may have answered."""
        rest = memoryview(request)
        while rest:
            self._connection.settimeout(self._left())
            try:
                rest = rest[self._connection.send(rest) :]
            except TimeoutError:
                raise
            except OSError as error:
                return error
        return None

    def receive(self, buffer: memoryview) -> int:
        """How much came; beyond what is allowed nothing does, as if that were the end."""
        if self._allowed == 0:
            return 0
        self._connection.settimeout(self._left())
        count = self._connection.recv_into(buffer, min(len(buffer), self._allowed))
        self._allowed -= count
        return count

    @property
    def used_up(self) -> bool:
        return self._allowed == 0

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        """What `http.client` reads an answer from: the same for every answer."""
        return self._file


class _Reader(io.RawIOBase):
    def __init__(self, receive: Callable[[memoryview], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(memoryview(buffer))


class _SharedFile(io.BufferedReader):
    """Is read by one response after the other: a response that is dropped does not close it."""

    def close(self) -> None:
        """The connection is closed where it was opened."""


def _answer(wire: _Wire, unsent: OSError | None) -> SendResult:
    from http.client import HTTPException, HTTPResponse

    for _ in range(MOST_INTERIM):
        with HTTPResponse(wire, method="POST") as response:  # type: ignore[arg-type]
            try:
                response.begin()
            except (HTTPException, OSError, ValueError) as error:
                cause = unsent or error
                if wire.used_up or not isinstance(cause, OSError):
                    raise _Unreadable from error
                raise cause from None
            if response.status >= 200:
                return SendResult(response.status, told(response.status), _body(response))
    raise _Unreadable


def _body(response: HTTPResponse) -> bytes:
    """As much as is kept of it, and as much as came."""
    from http.client import HTTPException, IncompleteRead

    try:
        return response.read(LARGEST_ANSWER)
    except IncompleteRead as cut:
        return cut.partial[:LARGEST_ANSWER]
    except (HTTPException, OSError, ValueError):
        return b""


def told(status: int) -> str | None:
    """A status in our own words; None for one of success."""
    from http import HTTPStatus

    if 200 <= status < 300:
        return None
    known = {member.value: member.phrase for member in HTTPStatus}
    text = f"HTTP {status} {known.get(status, '')}".rstrip()
    return f"{text}; redirects are not followed" if 300 <= status < 400 else text


def reason(error: OSError, seconds: float) -> str:
    """Why no answer came, in our own words: nothing that the other side said."""
    import ssl

    if isinstance(error, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(error, _NoAddress):
        return "the URL's host is not known"
    if isinstance(error, _Unreadable):
        return "the answer is not HTTP, or too large"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return "there is no TLS, or none that is secure"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused"
    if isinstance(error, ConnectionError):
        return "the connection was closed before an answer came"
    return f"the connection failed: {error.strerror or type(error).__name__}"
