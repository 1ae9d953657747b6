"""A TCP proxy in front of a test server, which can stop to forward without closing anything."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator

from psycopg.conninfo import conninfo_to_dict

BLOCK = 65_536


class Proxy:
    """Forwards TCP connections on 127.0.0.1 to the unix socket of the server in `url`."""

    def __init__(self, url: str) -> None:
        parts = conninfo_to_dict(url)
        self._target = f"{parts['host']}/.s.PGSQL.{parts.get('port', 5432)}"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.url = f"postgresql://{parts['user']}@127.0.0.1:{port}/{parts['dbname']}"
        self._peers: dict[socket.socket, socket.socket] = {}
        self._closed = threading.Event()
        self._blackholed = threading.Event()
        self._half_open = threading.Event()
        self._servers: set[socket.socket] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def blackhole(self) -> None:
        """Accept and acknowledge everything, and forward nothing: open and new connections hang."""
        self._blackholed.set()

    def half_open(self) -> None:
        """Forward what clients send, and none of the answers."""
        self._half_open.set()

    def heal(self) -> None:
        """Forward again. What was sent meanwhile arrives."""
        self._blackholed.clear()
        self._half_open.clear()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        for one in (self._listener, *self._peers):
            one.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            if self._blackholed.is_set():
                self._closed.wait(0.02)
                continue
            silent = self._servers if self._half_open.is_set() else set()
            heard = [one for one in self._peers if one not in silent]
            ready, _, _ = select.select([self._listener, *heard], [], [], 0.02)
            for one in ready:
                if one is self._listener:
                    self._accept()
                elif one in self._peers:
                    self._forward(one)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            # The server restarts.
            client.close()
            server.close()
            return
        self._servers.add(server)
        self._peers[client], self._peers[server] = server, client

    def _forward(self, source: socket.socket) -> None:
        target = self._peers[source]
        try:
            data = source.recv(BLOCK)
            if data:
                target.sendall(data)
                return
        except OSError:
            pass
        for one in (source, target):
            self._peers.pop(one, None)
            self._servers.discard(one)
            one.close()


@contextlib.contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    try:
        yield proxy
    finally:
        proxy.close()
