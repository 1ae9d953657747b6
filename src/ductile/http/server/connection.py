"""One connection, guarded: heads and bodies have a size and a deadline, readers a patience.

uvicorn alone keeps a half-sent head open for ever and takes heads of megabytes. Deadlines
are looked at by the server's tick, so that a request costs two assignments and no timer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from ductile.http.server.connection_limit import ConnectionLimiter, ConnectionState
from ductile.log import logger

if TYPE_CHECKING:
    from uvicorn import Config
    from uvicorn.server import ServerState

    from ductile.http.middleware.fast_path import FastPath, FastRoute

LARGEST_HEAD = 32 * 1024
MOST_HEADERS = 100
LARGEST_FRAMING = 32 * 1024
"""Of what comes around a body beyond its own size: sizes of chunks, their extensions, trailers."""
LARGEST_HELD = 16 * 1024
"""Of a body that is waited for before its request is looked at."""
LARGEST_LEFTOVER = 1024 * 1024
"""Of a body that nobody reads any more, because its request was refused."""
HEAD_WITHIN = 10.0
BODY_WITHIN = 30.0
STALLED_FOR = 30.0
"""How long a client may leave its answer unread."""
STOPPED = b'{"error":"the gateway stops; whether this is done is not known","code":"stopping"}\n'


class _TooLarge(Exception):
    """Stops the parser."""


class Connection(HttpToolsProtocol):
    _deadline: float | None = None
    _stalled: float | None = None
    _has_head = False
    """Whether the head of a request has come, and its body not yet."""
    _surplus = 0
    """Bytes that came since a head, a body or the time between two requests began; a body takes
    twice its own away."""
    _head_read = 0
    """Bytes of the headers that the parser has handed over."""
    _leftover = 0
    _refusal: tuple[int, str, str] | None = None
    _express: FastPath | None = None
    _held: RequestResponseCycle | None = None
    """A request for the express, whose body is not complete."""
    _handed: RequestResponseCycle | None = None
    """One that the express has, and has yet to answer."""
    _way: FastRoute

    def __init__(self, config: Config, server_state: ServerState, room: ConnectionLimiter) -> None:
        super().__init__(config, server_state, {})
        self._room = room

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._express = getattr(self.app, "express", None)
        self._deadline = self.loop.time() + HEAD_WITHIN
        if not self._room.enter(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._room.leave(self)
        super().connection_lost(exc)

    @property
    def standing(self) -> ConnectionState:
        if self.transport.is_closing():
            return ConnectionState.LEAVING
        answered = self._is_answered()
        if self._deadline is not None and (self._has_head or answered):
            return ConnectionState.BODILESS if self._has_head else ConnectionState.HEADLESS
        if self._stalled is not None or (answered and self.transport.get_write_buffer_size()):
            return ConnectionState.UNREAD
        return ConnectionState.IDLE if answered else ConnectionState.AT_WORK

    def give_way(self) -> None:
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            # The first bytes of a request; its head ends the time that starts here.
            self._deadline = self.loop.time() + HEAD_WITHIN
        # Of the read in which one of these begins none count: the parser does not say where.
        self._surplus += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._has_head and self._surplus > LARGEST_FRAMING:
            self._refuse(413, "there is more around the body than in it", "too_much_framing")
        elif not self._has_head and self._surplus > LARGEST_HEAD:
            self._refuse(431, "the head is too large", "head_too_large")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._leftover = self._surplus = self._head_read = 0

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > LARGEST_HEAD:
            self._stop(414, "the URL is too long", "url_too_long")

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._head_read += len(name) + len(value)
        if len(self.headers) > MOST_HEADERS or self._head_read > LARGEST_HEAD:
            self._stop(431, "the head is too large", "head_too_large")

    def on_headers_complete(self) -> None:
        self._has_head, self._surplus = True, 0
        self._deadline = self.loop.time() + BODY_WITHIN
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        # Once for itself, and once for the sizes of its chunks: they may be small.
        self._surplus -= 2 * len(body)
        if self.cycle.response_complete:
            self._leftover += len(body)
            if self._leftover > LARGEST_LEFTOVER:
                self.transport.close()
        super().on_body(body)
        if self._held is not None and len(self._held.body) > LARGEST_HELD:
            self._go_the_ordinary_way(self._held)

    def on_message_complete(self) -> None:
        self._deadline, self._has_head, self._surplus = None, False, 0
        super().on_message_complete()
        if self._held is not None:
            self._hand_over(self._held)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        fit = cycle.more_body and not cycle.waiting_for_100_continue and not self.flow.write_paused
        way = self._express.way_for(cycle.scope) if self._express is not None and fit else None
        if way is not None:
            self._held, self._way = cycle, way
        else:
            super()._start_asgi_task(cycle, app)

    def _go_the_ordinary_way(self, cycle: RequestResponseCycle) -> None:
        self._held = None
        super()._start_asgi_task(cycle, self.app)

    def _hand_over(self, cycle: RequestResponseCycle) -> None:
        """To the express, now that the request is complete."""
        self._held = None

        def answered(answer: tuple[int, bytes] | None) -> None:
            if self._handed is not cycle:
                return
            self._handed = None
            if cycle.disconnected:
                return
            if answer is None:
                self._go_the_ordinary_way(cycle)
            else:
                self._answer(cycle, *answer)

        self._handed = cycle
        try:
            taken = self._way.take(cycle.scope, bytes(cycle.body), answered)
        except Exception as error:  # noqa: BLE001 - the parser would take it for the client's fault
            logger("http").crash("a short way met a bug", error)
            taken = False
        if not taken:
            self._handed = None
            self._go_the_ordinary_way(cycle)

    def _answer(self, cycle: RequestResponseCycle, status: int, body: bytes) -> None:
        """As a cycle would send it: the next request is looked at when this is done."""
        end = b"\r\n" if cycle.keep_alive else b"connection: close\r\n\r\n"
        head = b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body)
        self.transport.write(STATUS_LINE[status] + self._usual_headers() + head + end + body)
        cycle.response_started = cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        cycle.on_response()

    def _usual_headers(self) -> bytes:
        """Those of every answer, such as the date."""
        usual = self.server_state.default_headers
        return b"".join(b"%b: %b\r\n" % (name, value) for name, value in usual)

    def abandon(self) -> None:
        """The server ends, and nobody will answer what the express still has."""
        cycle = self._held or self._handed
        self._held = self._handed = None
        if cycle is not None and not self.transport.is_closing():
            cycle.keep_alive = False
            self._answer(cycle, 503, STOPPED)

    def pause_writing(self) -> None:
        self._stalled = self.loop.time() + STALLED_FOR
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    def look(self, now: float) -> None:
        """Cut the client off if its time is over."""
        if self._stalled is None and self.transport.is_closing():
            # What it does not read keeps the connection, however little it is.
            self._stalled = now + STALLED_FOR
        if self._stalled is not None and now > self._stalled:
            self.transport.abort()
        elif self._deadline is not None and now > self._deadline:
            self._deadline = None
            self._refuse(408, "the request did not come in time", "too_slow")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        """What the parser refused, in the shape of every other error."""
        self._refuse(*(self._refusal or (400, "this is no HTTP request", "bad_request")))

    def _stop(self, status: int, text: str, code: str) -> None:
        """Have the parser give up; it comes back by `send_400_response`."""
        self._refusal = (status, text, code)
        raise _TooLarge

    def _refuse(self, status: int, text: str, code: str) -> None:
        """Close, and tell why where it cannot be taken for another answer, or a part of one."""
        if not self._is_answering():
            body = f'{{"error":"{text}","code":"{code}"}}\n'.encode()
            head = (
                b"content-type: application/json\r\nconnection: close\r\n"
                b"content-length: %d\r\n\r\n" % len(body)
            )
            self.transport.write(STATUS_LINE[status] + self._usual_headers() + head + body)
        self.transport.close()

    def _is_answering(self) -> bool:
        """Whether an answer has begun, or is due before that to the request that comes now."""
        if self._has_head:
            return self.cycle.response_started or bool(self.pipeline)
        return not self._is_answered()

    def _is_answered(self) -> bool:
        """Whether the last request whose head has come has all of its answer."""
        return self.cycle is None or self.cycle.response_complete
