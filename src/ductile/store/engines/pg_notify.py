"""Wake-ups between the nodes of one PostgreSQL database: NOTIFY without data.

A wake-up is sent after its commit, on a separate connection and at a limited rate, so that no
transaction waits for the server's single notification queue. A node that receives one reads the
tables; polling makes up for lost wake-ups.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import psycopg

from ductile.store.engines.pg_connection import abort_connection
from ductile.store.engines.pg_deadlines import ConnectionDeadlines

_NOTIFY, _LISTEN = "NOTIFY ductile_notices", "LISTEN ductile_notices"
SEND_INTERVAL = 0.02
"""Seconds between two wake-ups of one node."""
LOOK_INTERVAL = 0.02
"""Seconds between two looks: with many nodes, many wake-ups cost one look."""
SHORT_POLL = 0.05
POLL = 1.0
RECONNECT = 1.0
ANSWER_TIMEOUT = 5.0
"""Seconds for one statement."""


class PgNotifier:
    """Wakes the other nodes, and calls `look` when they wake this one.

    `look` returns whether it wants to be called again soon.
    """

    def __init__(self, url: str, look: Callable[[], bool], deadlines: ConnectionDeadlines) -> None:
        self._url, self._look, self._deadlines = url, look, deadlines
        self._posted, self._ended = threading.Event(), threading.Event()
        self._connections: list[psycopg.Connection] = []
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
            for name, loop in (("pg-notify", self._send), ("pg-listen", self._receive))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(self) -> None:
        """Wake the other nodes: a commit has written notices."""
        self._posted.set()

    def abort(self) -> None:
        """End without waiting for a server that does not answer."""
        self._ended.set()
        self._posted.set()
        for connection in list(self._connections):
            abort_connection(connection)

    def stop(self) -> None:
        self._ended.set()
        self._posted.set()
        for thread in self._threads:
            thread.join()

    def _run(self, loop: Callable[[psycopg.Connection], None]) -> None:
        """Run `loop` on a connection, and on a new one whenever the server drops it."""
        while not self._ended.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=10) as connection:
                    self._connections.append(connection)
                    try:
                        loop(connection)
                    finally:
                        self._connections.remove(connection)
            except psycopg.Error:
                # Notices are late until it is back; the failed writes have reported the reason.
                self._ended.wait(RECONNECT)

    def _send(self, connection: psycopg.Connection) -> None:
        while not self._ended.is_set():
            self._posted.wait()
            self._posted.clear()
            with self._deadlines.limit(connection, ANSWER_TIMEOUT):
                connection.execute(_NOTIFY)
            self._ended.wait(SEND_INTERVAL)
        # Wakes this node's own receiving thread, so that it ends.
        with self._deadlines.limit(connection, ANSWER_TIMEOUT):
            connection.execute(_NOTIFY)

    def _receive(self, connection: psycopg.Connection) -> None:
        with self._deadlines.limit(connection, ANSWER_TIMEOUT):
            connection.execute(_LISTEN)
        while not self._ended.is_set():
            wait = SHORT_POLL if self._look() else POLL
            self._ended.wait(LOOK_INTERVAL)
            for _ in connection.notifies(timeout=wait, stop_after=1):
                pass
