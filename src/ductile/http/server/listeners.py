"""The listeners: bound sockets, served by one thread with one event loop."""

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
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from ductile._fast_dataclass import dataclass
from ductile.engine.socket_path import short_address
from ductile.errors import Refused
from ductile.files import give_to_owner
from ductile.http.crash_log import log_crash, log_loop_error
from ductile.http.middleware.context import BLOCKING_THREADS, MAX_PLUGIN_TESTS
from ductile.http.server.connection import HttpConnection
from ductile.http.server.connection_limit import ConnectionLimiter, EvictableConnection
from ductile.log import logger

KERNEL_BACKLOG = 1024
"""Connections that the kernel queues during a burst."""
ACCEPTS_PER_TURN = 1
"""Per turn of the event loop. Without descriptors asyncio fails and logs once per accept."""
ACCEPT_TURNS = 3
"""Turns of the event loop from the accept of a connection until its protocol has it."""
READER_THREADS = 6
"""Threads that read the ledger, in addition to those for long blocking calls."""
TICK = 1.0
"""Seconds between two checks of the deadlines and the local socket; the age of the date header."""
CLOSE_GRACE = 30.0
"""Seconds that the open requests of a listener have after a reload has closed it."""
REPLACE_TIMEOUT = 10.0
LOG_INTERVAL = 1.0
_OUT_OF_RESOURCES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class _BacklogSocket(socket.socket):
    def listen(self, _backlog: int = KERNEL_BACKLOG, /) -> None:
        """Listen with room for a burst: asyncio uses one number for the kernel's queue and for the
        connections that it accepts per turn."""
        super().listen(KERNEL_BACKLOG)


def bind_local(path: Path) -> socket.socket:
    """Bind a unix socket that only its owner can open, from the moment that it exists."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = _BacklogSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Linux creates the file with the mode of the socket; the umask would affect other threads.
    os.fchmod(listener.fileno(), 0o600)
    try:
        with short_address(path) as address:
            listener.bind(address)
        give_to_owner(path)
    except OSError:
        listener.close()
        raise
    listener.listen()
    return listener


def bind_tcp(address: tuple[str, int]) -> socket.socket:
    """Bind a TCP socket; raise `Refused` if the address is in use or not local."""
    host, port = address
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # `localhost` may resolve to both families; most clients try IPv4 first.
        family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
        bound = socket.create_server(place, family=family, backlog=KERNEL_BACKLOG)
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]
        raise Refused(f"cannot listen on {host}:{port}: {reason}", errno=error.errno) from error
    listener = _BacklogSocket(fileno=bound.detach())
    # asyncio sets TCP_NODELAY only on sockets that name their protocol; without it the second
    # part of a response waits 40 ms for the client's delayed acknowledgement.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


@dataclass(frozen=True, slots=True)
class Listener:
    """A bound socket, the application that serves it, and the limit on its connections."""

    name: str
    app: Callable[..., Any]
    socket: socket.socket
    limiter: ConnectionLimiter
    path: Path | None = None
    """Of a unix socket, which is bound again if the file is removed."""
    configured: tuple[str, int] | None = None
    """Of a TCP socket: the address in the configuration, whose port may be 0."""

    @property
    def address(self) -> str:
        """The path of a unix socket, or host and port."""
        name = self.socket.getsockname()
        return name if isinstance(name, str) else f"{name[0]}:{name[1]}"


class _Server(uvicorn.Server):
    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._configs = [_config(listener.app) for listener in listeners]
        self._listeners = listeners
        self._changing = asyncio.Lock()
        self._bind_error: int | None = None
        self.stopping = asyncio.Event()
        super().__init__(self._configs[0])

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals to the gateway."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002
        self.servers = []
        for listener, config in zip(self._listeners, self._configs, strict=True):
            if not config.loaded:
                config.load()
            self.servers.append(await self._listen(listener, config, listener.socket))
        self.started = True

    async def _listen(
        self, listener: Listener, config: uvicorn.Config, bound: socket.socket
    ) -> asyncio.Server:
        factory = partial(HttpConnection, config, self.server_state, listener.limiter)
        loop = asyncio.get_running_loop()
        return await loop.create_server(factory, sock=bound, backlog=ACCEPTS_PER_TURN)

    async def replace(self, listeners: Sequence[Listener]) -> None:
        """Serve these listeners; those that are not among them take no further connection.

        Their open requests are answered, within `CLOSE_GRACE`.
        """
        async with self._changing:
            running = {
                listener.name: (listener, config, server)
                for listener, config, server in zip(
                    self._listeners, self._configs, self.servers, strict=True
                )
            }
            configs: list[uvicorn.Config] = []
            servers: list[asyncio.Server] = []
            for listener in listeners:
                known = running.get(listener.name)
                if known is not None and known[0] is listener:
                    _, config, server = running.pop(listener.name)
                else:
                    config = _config(listener.app)
                    config.load()
                    server = await self._listen(listener, config, listener.socket)
                configs.append(config)
                servers.append(server)
            self._listeners, self._configs, self.servers = listeners, configs, servers
        for listener, _, server in running.values():
            await _stop_accepting(listener.socket)
            server.close()
            _retire(list(listener.limiter))

    async def _restore_sockets(self) -> None:
        """Bind a unix socket again whose file was removed; open connections continue."""
        async with self._changing:
            await self._bind_removed()

    async def _bind_removed(self) -> None:
        for index, (listener, config) in enumerate(
            zip(self._listeners, self._configs, strict=True)
        ):
            if listener.path is None or not _is_missing(listener.path):
                continue
            try:
                bound = bind_local(listener.path)
            except OSError as error:
                if error.errno != self._bind_error:
                    self._bind_error = error.errno
                    logger("http").error("cannot bind the removed socket", error=error.strerror)
                continue
            self._bind_error = None
            removed, self.servers[index] = (
                self.servers[index],
                await self._listen(listener, config, bound),
            )
            removed.close()
            logger("http").warning("bound the removed socket again", path=str(listener.path))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        # uvicorn has cancelled its tasks; it does not know the requests of the fast path.
        for connection in list(self.server_state.connections):
            assert isinstance(connection, HttpConnection)
            connection.abandon()

    async def main_loop(self) -> None:
        """Tick until the server stops; uvicorn's loop wakes up ten times per second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK):
                    await self.stopping.wait()

    async def on_tick(self, counter: int) -> bool:
        now = asyncio.get_running_loop().time()
        for connection in list(self.server_state.connections):
            assert isinstance(connection, HttpConnection)
            connection.check_deadlines(now)
        await self._restore_sockets()
        return await super().on_tick(counter)


async def _stop_accepting(listener: socket.socket) -> None:
    """Return when the limiter knows every connection that was accepted.

    asyncio neither closes nor serves one whose server is closed while it is being accepted.
    """
    asyncio.get_running_loop().remove_reader(listener)
    for _ in range(ACCEPT_TURNS):
        await asyncio.sleep(0)


def _retire(connections: Sequence[EvictableConnection]) -> None:
    """Close the connections: idle ones now, the others after their response or the grace."""
    for connection in connections:
        assert isinstance(connection, HttpConnection)
        connection.close_after_response()
    loop = asyncio.get_running_loop()
    loop.call_later(CLOSE_GRACE, _evict_all, connections)


def _evict_all(connections: Sequence[EvictableConnection]) -> None:
    for connection in connections:
        connection.evict()


def _config(app: Callable[..., Any]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=HttpConnection,
        ws="none",
        loop="asyncio",
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=2,
    )


def _is_missing(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


class _LoopErrorHandler:
    """Logs unhandled errors of callbacks and tasks; asyncio's own messages are not redacted."""

    def __init__(self) -> None:
        self._silent_until = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in _OUT_OF_RESOURCES:
            self._log_exhaustion(error, loop.time())
        elif isinstance(error, BaseException):
            log_crash(str(context["message"]), error)
        else:
            log_loop_error(str(context["message"]))

    def _log_exhaustion(self, error: OSError, now: float) -> None:
        """Log at most once per second: asyncio retries on every listener."""
        if now >= self._silent_until:
            self._silent_until = now + LOG_INTERVAL
            logger("http").error("cannot accept connections", error=error.strerror)


class HttpServer:
    def __init__(
        self, listeners: Sequence[Listener], *, on_stop: Callable[[], None] | None = None
    ) -> None:
        """`on_stop` is called in the loop when the server stops, to end long responses."""
        # uvicorn's messages are not redacted; what matters of them is logged here.
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL + 1)
        # asyncio warns of each write to a connection that its client has reset.
        logging.getLogger("asyncio").setLevel(logging.ERROR)
        self.listeners = listeners
        self._on_stop = on_stop
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server = _Server(listeners)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_LoopErrorHandler())
        threads = READER_THREADS + BLOCKING_THREADS + MAX_PLUGIN_TESTS
        self._loop.set_default_executor(ThreadPoolExecutor(threads, "http"))
        await self._server.serve()

    def ping(self, answered: Callable[[], None]) -> None:
        """Have the event loop call `answered`, which shows that the loop is not blocked."""
        if self._loop is None:
            answered()  # The loop has not started yet.
        else:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(answered)

    def replace(self, listeners: Sequence[Listener]) -> None:
        """Serve these bound listeners from now on; called on another thread than the loop's."""
        assert self._loop is not None
        before, self.listeners = self.listeners, listeners
        work = self._server.replace(listeners)
        try:
            done = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()  # The loop has ended: it serves nothing any more.
            return
        try:
            done.result(REPLACE_TIMEOUT)
        except TimeoutError:
            done.cancel()
            logger("http").error("the listeners were not replaced; restart the gateway")
        for listener in before:
            if listener not in listeners:
                listener.socket.close()

    @property
    def is_started(self) -> bool:
        return self._server.started

    def stop(self) -> None:
        # First, since a loop that starts now looks at it after this has looked for the loop.
        self._server.should_exit = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # The loop has ended already.
                self._loop.call_soon_threadsafe(self._stop_loop)
        self._thread.join()
        for listener in self.listeners:
            listener.socket.close()

    def _stop_loop(self) -> None:
        self._server.stopping.set()
        if self._on_stop is not None:
            self._on_stop()
