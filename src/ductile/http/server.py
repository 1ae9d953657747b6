"""The listeners, in one thread with one loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from ductile.errors import Refused

LONGEST_SOCKET_PATH = 107


def bind_local(path: Path) -> socket.socket:
    """A unix socket that only its owner can open, from the moment that it exists."""
    if len(os.fsencode(path)) > LONGEST_SOCKET_PATH:
        raise Refused(f"the socket's path is longer than {LONGEST_SOCKET_PATH} bytes: {path}")
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    listener.listen(256)
    return listener


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the gateway's."""
        yield


class HttpServer:
    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        self._listener = listener
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            http="httptools",
            ws="none",
            loop="asyncio",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        asyncio.run(self._server.serve(sockets=[self._listener]))

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
