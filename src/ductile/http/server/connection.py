"""One HTTP connection with limits on sizes and times, and the entrance of the fast path.

uvicorn by itself keeps a half-sent head open indefinitely and accepts heads of several megabytes.
The server's tick checks the deadlines, so that a request needs no timer.

This module overrides private hooks of uvicorn (`_start_asgi_task` and attributes of
`RequestResponseCycle`). pyproject.toml pins uvicorn to the versions that this was tested with, and
tests/http/server/test_uvicorn_hooks.py fails if a hook disappears.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import TYPE_CHECKING, Any, NoReturn

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ductile.http.crash_log import log_crash
from ductile.http.middleware.caller import PEER_UID
from ductile.http.server.connection_limit import ConnectionLimiter, ConnectionState

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from ductile.http.middleware.fast_path import FastPath, FastRoute

MAX_HEAD_BYTES = 32 * 1024
MAX_HEADERS = 100
MAX_FRAMING_BYTES = 32 * 1024
"""Bytes around a body: chunk sizes, chunk extensions and trailers."""
MAX_HELD_BODY = 16 * 1024
"""The largest body that the fast path waits for."""
MAX_UNREAD_BODY = 64 * 1024 * 1024
"""The largest rest of a body that is skipped after its request was refused. A client that cannot
send its whole body reports a broken pipe instead of the response."""
HEAD_TIMEOUT = 10.0
BODY_TIMEOUT = 30.0
WRITE_TIMEOUT = 30.0
"""Seconds that a client may leave a response unread."""
DISCARD_TIMEOUT, MAX_DISCARDED_BYTES = 5.0, 4 * 1024 * 1024
"""How long and how much is read from a client whose connection is refused."""
ABSOLUTE_TARGET = re.compile(rb"https?://([^/?#@:][^/?#@]*)(/[^?]*)?(\?.*)?", re.I | re.S)
PEER_CREDENTIALS = struct.Struct("3i")
STOPPING = (
    b'{"error":"the gateway is stopping; the request may or may not have been executed",'
    b'"code":"stopping"}\n'
)


class _StopParser(Exception):
    """Ends the parser's callback; `send_400_response` then sends the stored refusal."""


class _ResponseTransport:
    """What a response is written to: `close` first waits for the rest of the request's body.

    The kernel answers bytes that are unread at the close with a reset, and the client then loses
    the response.
    """

    def __init__(self, connection: HttpConnection, cycle: RequestResponseCycle) -> None:
        self._connection, self._cycle = connection, cycle
        self.write = connection.transport.write
        self.is_closing = connection.transport.is_closing

    def close(self) -> None:
        self._connection.close_after(self._cycle)


class HttpConnection(HttpToolsProtocol):
    _read_deadline: float | None = None
    _write_deadline: float | None = None
    _has_head = False
    """Whether the head of a request is complete and its body is not."""
    _surplus = 0
    """Bytes received since the head, the body or the pause between two requests began, minus twice
    the bytes of the body."""
    _head_bytes = 0
    """Bytes of headers that the parser has handed over."""
    _skipped_bytes = 0
    _close_after_body = False
    """Whether the connection ends with the body of a request that is answered already."""
    _refusal: tuple[int, str, str] | None = None
    _deferred: tuple[int, str, str] | None = None
    """A refusal that follows the responses to the requests before it."""
    _discards = False
    """Whether the connection is refused, and what still arrives is read only to be dropped."""
    _peer_uid: int | None = None
    _fast_path: FastPath | None = None
    _held: RequestResponseCycle | None = None
    """A request for the fast path whose body is incomplete."""
    _taken: RequestResponseCycle | None = None
    """A request that the fast path has taken and not answered yet."""
    _fast_route: FastRoute

    def __init__(
        self, config: Config, server_state: ServerState, limiter: ConnectionLimiter
    ) -> None:
        super().__init__(config, server_state, {})
        self._limiter = limiter

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._fast_path = getattr(self.app, "fast_path", None)
        self._peer_uid = _find_peer_uid(transport)
        self._read_deadline = self.loop.time() + HEAD_TIMEOUT
        if not self._limiter.admit(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._limiter.remove(self)
        super().connection_lost(exc)

    @property
    def state(self) -> ConnectionState:
        if self.transport.is_closing():
            return ConnectionState.CLOSING
        answered = self._is_answered()
        if self._read_deadline is not None and (self._has_head or answered):
            return (
                ConnectionState.AWAITING_BODY if self._has_head else ConnectionState.AWAITING_HEAD
            )
        if self._write_deadline is not None or (
            answered and self.transport.get_write_buffer_size()
        ):
            return ConnectionState.WRITE_BLOCKED
        return ConnectionState.IDLE if answered else ConnectionState.ACTIVE

    def evict(self) -> None:
        self.transport.abort()

    def close_after_response(self) -> None:
        """Close the connection, once the request whose head it has received is answered."""
        if self._is_answered():
            # The client may still be sending the body of a request that was refused early.
            self._close_after_body = self._has_head
            if not self._has_head:
                self.transport.close()
            return
        for cycle in (self._held, self._taken, self.cycle):
            if cycle is not None:
                cycle.keep_alive = False

    # Reading a request

    def data_received(self, data: bytes) -> None:
        if self._discards or self._deferred:
            self._discard(data)
            return
        if self._read_deadline is None:
            # The first bytes of a request start the time limit of its head.
            self._read_deadline = self.loop.time() + HEAD_TIMEOUT
        # The parser does not say where in the data a head or a body begins, so that the bytes of
        # the read in which one begins do not count.
        self._surplus += len(data)
        super().data_received(data)
        if self.transport.is_closing() or self._discards or self._deferred:
            return
        if self._has_head and self._surplus > MAX_FRAMING_BYTES:
            self._refuse(413, "the framing of the body is larger than the body", "too_much_framing")
        elif not self._has_head and self._surplus > MAX_HEAD_BYTES:
            self._refuse(431, "the request head is too large", "head_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._peer_uid is not None:
            self.scope[PEER_UID] = self._peer_uid  # type: ignore[literal-required]
        self._skipped_bytes = self._surplus = self._head_bytes = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > MAX_HEAD_BYTES:
            self._stop_parser(414, "the URL is too long", "url_too_long")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Fields after the body are trailers. Nothing here uses them, and as headers they would
        # change a request whose access is decided already.
        if not self._has_head:
            super().on_header(name, value)
        self._head_bytes += len(name) + len(value)
        if len(self.headers) > MAX_HEADERS or self._head_bytes > MAX_HEAD_BYTES:
            self._stop_parser(431, "the request head is too large", "head_too_large")

    def on_headers_complete(self) -> None:
        self._normalize_target()
        super().on_headers_complete()
        if self.parser.should_upgrade():
            # The parser drops what follows such a request in the same read.
            self.cycle.keep_alive = False
        # Last, since a refusal until here belongs to no request that the application knows.
        self._has_head, self._surplus = True, 0
        self._read_deadline = self.loop.time() + BODY_TIMEOUT

    def _normalize_target(self) -> None:
        """Reduce an absolute URL to its path; its authority takes the place of the Host."""
        if self.parser.get_method() == b"CONNECT":
            self._stop_parser(400, "this gateway is not a proxy", "bad_request")
        if self.url.startswith(b"/") or self.url == b"*":
            return
        absolute = ABSOLUTE_TARGET.fullmatch(self.url)
        if absolute is None:
            self._stop_parser(400, "the request target must be a path or a URL", "bad_request")
        authority, path, query = absolute.groups()
        self.url = (path or b"/") + (query or b"")
        self.headers[:] = [(n, authority if n == b"host" else v) for n, v in self.headers]

    def on_body(self, body: bytes) -> None:
        # Twice, because the framing of small chunks is as long as the chunks.
        self._surplus -= 2 * len(body)
        if self.cycle.response_complete:
            self._skipped_bytes += len(body)
            if self._skipped_bytes > MAX_UNREAD_BODY:
                self.transport.close()
        super().on_body(body)
        if self._held is not None and len(self._held.body) > MAX_HELD_BODY:
            self._use_normal_route(self._held)

    def on_message_complete(self) -> None:
        self._read_deadline, self._has_head, self._surplus = None, False, 0
        super().on_message_complete()
        if self._close_after_body:
            self.transport.close()
        elif self._held is not None:
            self._use_fast_route(self._held)

    def close_after(self, cycle: RequestResponseCycle) -> None:
        """Close; after a complete response once the body of its request is received as well."""
        if cycle.response_complete and cycle is self.cycle and self._has_head:
            self._close_after_body = True
        else:
            self.transport.close()

    # The fast path

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        usable = (
            self._fast_path is not None
            and cycle.more_body
            and not cycle.waiting_for_100_continue
            and not self.flow.write_paused
        )
        route = self._fast_path.route_for(cycle.scope) if self._fast_path and usable else None
        if route is not None:
            self._held, self._fast_route = cycle, route
        else:
            self._start_application(cycle, app)

    def _start_application(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.transport = _ResponseTransport(self, cycle)  # type: ignore[assignment]
        super()._start_asgi_task(cycle, app)

    def _use_normal_route(self, cycle: RequestResponseCycle) -> None:
        self._held = None
        self._start_application(cycle, self.app)

    def _use_fast_route(self, cycle: RequestResponseCycle) -> None:
        """Offer a complete request to its fast route."""
        self._held = None

        def respond(answer: tuple[int, bytes] | None) -> None:
            if self._taken is not cycle:
                return
            self._taken = None
            if cycle.disconnected:
                return
            if answer is None:
                self._use_normal_route(cycle)
            else:
                self._respond(cycle, *answer)

        self._taken = cycle
        try:
            taken = self._fast_route.take(cycle.scope, bytes(cycle.body), respond)
        except Exception as error:  # noqa: BLE001 - the parser would blame the client for it
            log_crash("fast path raised an error; using the normal route", error)
            taken = False
        if not taken:
            self._taken = None
            self._use_normal_route(cycle)

    def _respond(self, cycle: RequestResponseCycle, status: int, body: bytes) -> None:
        """Send a response as the cycle would; it then starts the next pipelined request."""
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        head = b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + self._default_headers() + head + end + body)
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _default_headers(self) -> bytes:
        """The headers of every response, such as the date."""
        headers = self.server_state.default_headers
        return b"".join(b"%b: %b\r\n" % (name, value) for name, value in headers)

    def abandon(self) -> None:
        """Answer the request of the fast path that is open when the server stops."""
        cycle = self._held or self._taken
        self._held = self._taken = None
        if cycle is not None and not self.transport.is_closing():
            cycle.keep_alive = False
            self._respond(cycle, 503, STOPPING)

    # Deadlines and refusals

    def on_response_complete(self) -> None:
        if self.pipeline and self._has_head:
            # Reading was paused until now.
            self._read_deadline = self.loop.time() + BODY_TIMEOUT
        super().on_response_complete()
        if self._deferred is not None and self._is_answered() and not self.transport.is_closing():
            self._refuse(*self._deferred)

    def pause_writing(self) -> None:
        self._write_deadline = self.loop.time() + WRITE_TIMEOUT
        super().pause_writing()

    def resume_writing(self) -> None:
        if not self._discards:
            self._write_deadline = None
        super().resume_writing()

    def check_deadlines(self, now: float) -> None:
        """Close the connection if its client is too slow."""
        if self._write_deadline is None and self.transport.is_closing():
            # Unread bytes keep a closed connection open, however few they are.
            self._write_deadline = now + WRITE_TIMEOUT
        if self._write_deadline is not None and now > self._write_deadline:
            self.transport.abort()
        elif not self.pipeline and self._read_deadline is not None and now > self._read_deadline:
            self._read_deadline = None
            self._refuse(408, "the request was not received in time", "too_slow")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """Report what the parser rejected, in the shape of every other error."""
        self._refuse(*(self._refusal or (400, "this is not a valid HTTP request", "bad_request")))

    def _stop_parser(self, status: int, text: str, code: str) -> NoReturn:
        """Stop the parser; uvicorn then calls `send_400_response`."""
        self._refusal = (status, text, code)
        raise _StopParser

    def _refuse(self, status: int, text: str, code: str) -> None:
        """Close; send the reason unless the client could mistake it for another response."""
        if not self._has_head and not self._is_answered():
            self._deferred = (status, text, code)
            self._read_deadline, self._skipped_bytes = None, 0
            return
        is_complete = self._has_head and self._is_answered() and not self.pipeline
        if not self._has_head or not (self.cycle.response_started or self.pipeline):
            is_complete = True
            body = f'{{"error":"{text}","code":"{code}"}}\n'.encode()
            head = (
                b"content-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            )
            self.transport.write(STATUS_LINE[status] + self._default_headers() + head + body)
        if is_complete and self.transport.can_write_eof():
            self._start_discarding()
        else:
            self.transport.close()

    def _start_discarding(self) -> None:
        """End the answer, and read on until the client closes: a reset would take the answer away
        from a client that is still sending."""
        self._discards, self._skipped_bytes = True, 0
        if self._has_head:
            # Its route has nothing to send any more, and waits for no more of its body.
            self._held, self.cycle.disconnected = None, True
            self.cycle.message_event.set()
        self._read_deadline, self._write_deadline = None, self.loop.time() + DISCARD_TIMEOUT
        self.transport.write_eof()

    def _discard(self, data: bytes) -> None:
        self._skipped_bytes += len(data)
        if self._skipped_bytes > MAX_DISCARDED_BYTES:
            self.transport.abort()

    def _is_answered(self) -> bool:
        """Return whether the last request whose head is complete has its whole response."""
        return self.cycle is None or self.cycle.response_complete


def _find_peer_uid(transport: asyncio.Transport) -> int | None:
    """Return the user at the other end of a unix socket; None for other sockets."""
    peer = transport.get_extra_info("socket")
    if peer is None or peer.family != socket.AF_UNIX:
        return None
    _pid, uid, _gid = PEER_CREDENTIALS.unpack(
        peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    )
    return int(uid)
