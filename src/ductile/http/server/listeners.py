"""The listeners, in one thread with one loop."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import uvicorn

from ductile.engine.socket_path import too_long
from ductile.errors import Refused
from ductile.http.middleware.context import ASIDE
from ductile.http.server.connection import Connection
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.log import logger
from ductile.record import dataclass

WAITING = 1024
"""Connections that the kernel keeps for us while a burst comes in."""
ACCEPTED_AT_ONCE = 1
"""In one turn of the loop. Out of descriptors, asyncio fails, tells and tries again that often."""
READING = 6
"""Threads that read the ledger, beside those for what blocks long."""
TICKS_BETWEEN_LOOKS = 5
BETWEEN_COMPLAINTS = 1.0
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _Listener(socket.socket):
    def listen(self, _backlog: int = WAITING, /) -> None:
        """With room for a burst, always: asyncio takes the queue that the kernel keeps and the
        connections that it accepts at once for one number."""
        super().listen(WAITING)


def bind_local(path: Path) -> socket.socket:
    """A unix socket that only its owner can open, from the moment that it exists."""
    if (why := too_long(path)) is not None:
        raise Refused(why)
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = _Listener(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen()
    return listener


def bind_tcp(address: tuple[str, int]) -> socket.socket:
    """A TCP socket; `Refused` where the address is taken or not ours."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` may be both; the old form is what most clients try.
        family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        bound = socket.create_server(place, family=family, backlog=WAITING)
    except OSError as error:
        raise Refused(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener = _Listener(fileno=bound.detach())
    # asyncio sets it only where the socket names its protocol; without it the second part of
    # an answer waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@dataclass(frozen=True, slots=True)
class Door:
    """An application, where it listens, and the room for those who come."""

    name: str
    app: Callable[..., Any]
    listener: socket.socket
    room: ConnectionLimiter

    @property
    def place(self) -> str:
        """Where it listens, for people."""
        name = self.listener.getsockname()
        return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


class _Server(uvicorn.Server):
    def __init__(self, doors: Sequence[Door]) -> None:
        self._configs = [_config(door.app) for door in doors]
        self._doors = doors
        super().__init__(self._configs[0])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the gateway's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        loop = asyncio.get_running_loop()
        self.servers = []
        for door, config in zip(self._doors, self._configs, strict=True):
            if not config.loaded:
                config.load()
            make = _maker(config, self.server_state, door.room)
            self.servers.append(
                await loop.create_server(make, sock=door.listener, backlog=ACCEPTED_AT_ONCE)
            )
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # It has cancelled the tasks whose time is up, and does not know of other requests.
        for connection in list(self.server_state.connections):
            assert isinstance(connection, Connection)
            connection.abandon()

    async def on_tick(self, counter: int) -> bool:
        if counter % TICKS_BETWEEN_LOOKS == 0:
            now = asyncio.get_running_loop().time()
            for connection in list(self.server_state.connections):
                assert isinstance(connection, Connection)
                connection.look(now)
        return await super().on_tick(counter)


def _maker(config: uvicorn.Config, state: Any, room: ConnectionLimiter) -> Callable[[], Connection]:
    return lambda: Connection(config, state, room)


def _config(app: Callable[..., Any]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=Connection,
        ws="none",
        loop="asyncio",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )


class _Complaints:
    """What a callback or a task raised and nobody took; asyncio's own lines are not redacted."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        error = about.get("exception")
        if isinstance(error, OSError) and error.errno in _EXHAUSTED:
            self._exhausted(error, loop.time())
        elif isinstance(error, BaseException):
            logger("http").crash(str(about["message"]), error)
        else:
            logger("http").error(str(about["message"]))

    def _exhausted(self, error: OSError, now: float) -> None:
        """It is tried again and again, at every door."""
        if now >= self._next:
            self._next = now + BETWEEN_COMPLAINTS
            logger("http").error("a connection has to wait", error=error.strerror)


class HttpServer:
    def __init__(self, doors: Sequence[Door], *, closing: Callable[[], None] | None = None) -> None:
        """`closing` is called in the loop when the server stops, for those who would stay."""
        # Its lines would be neither redacted nor ours; what matters of them we log ourselves.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        self.doors = doors
        self._closing = closing
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = _Server(doors)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_Complaints())
        self._loop.set_default_executor(ThreadPoolExecutor(READING + ASIDE, "http"))
        await self._server.serve()

    def ask(self, answered: Callable[[], None]) -> None:
        """Have `answered` called in the loop, which shows that the loop goes round."""
        if self._loop is None:
            answered()  # It has yet to begin.
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(answered)

    def stop(self) -> None:
        running = self._loop is not None and not self._loop.is_closed()
        if self._loop is not None and running and self._closing is not None:
            self._loop.call_soon_threadsafe(self._closing)
        self._server.should_exit = True
        self._thread.join()
        for door in self.doors:
            door.listener.close()
