"""Wake-ups between the nodes of one PostgreSQL database: NOTIFY, carrying no data.

They are sent after the commit that they tell of, on a connection of their own, and seldom, so
that no transaction waits for the server's one queue of notifications. Whoever hears one looks
into the tables; polling makes good those that were lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from ductile.store.engines.pg_boot_lock import hang_up

_NOTIFY, _LISTEN = "NOTIFY ductile_notices", "LISTEN ductile_notices"
APART = 0.01
"""Seconds between two wake-ups of one node."""
SOON = 0.05
POLL = 1.0
RECONNECT = 1.0


class News:
    """Tells the other nodes, and hears from them; `ear` says whether it wants to look soon."""

    def __init__(self, url: str, ear: Callable[[], bool]) -> None:
        self._url, self._ear = url, ear
        self._posted, self._ended = threading.Event(), threading.Event()
        self._lines: list[psycopg.Connection] = []
        self._threads = [
            threading.Thread(target=self._keep, args=(loop,), name=name, daemon=True)
            for name, loop in (("news-out", self._tell), ("news-in", self._hear))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(self) -> None:
        """After a commit: somebody may want to look."""
        self._posted.set()

    def hang_up(self) -> None:
        self._ended.set()
        self._posted.set()
        for line in list(self._lines):
            hang_up(line)

    def stop(self) -> None:
        self._ended.set()
        self._posted.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, loop: Callable[[psycopg.Connection], None]) -> None:
        """Run `loop` on a connection, and on another when the server drops it."""
        while not self._ended.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                    self._lines.append(connection)
                    try:
                        loop(connection)
                    finally:
                        self._lines.remove(connection)
            except psycopg.Error:
                # Followers are late for as long as it lasts; whoever writes has said why.
                self._ended.wait(RECONNECT)

    def _tell(self, connection: psycopg.Connection) -> None:
        while not self._ended.is_set():
            self._posted.wait()
            self._posted.clear()
            connection.execute(_NOTIFY)
            self._ended.wait(APART)
        # Wakes our own other half.
        connection.execute(_NOTIFY)

    def _hear(self, connection: psycopg.Connection) -> None:
        connection.execute(_LISTEN)
        while not self._ended.is_set():
            wait = SOON if self._ear() else POLL
            for _ in connection.notifies(timeout=wait, stop_after=1):
                pass
