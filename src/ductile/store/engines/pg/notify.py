"""Wake-ups between the nodes of one PostgreSQL database: NOTIFY with the kinds of news.

A wake-up is sent after its commit, on a separate connection and at a limited rate, so that no
transaction waits for the server's single notification queue. A node that receives one reads the
tables; polling makes up for lost wake-ups. Notices are announced only while a node follows the
stream, which it repeats as long as it does.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable

import psycopg

from ductile.store.engines.api import NewsReader, NodeNews
from ductile.store.engines.pg.connection import abort_connection
from ductile.store.engines.pg.deadlines import ConnectionDeadlines

_NOTIFY, _LISTEN = "SELECT pg_notify('ductile_nodes', %s)", "LISTEN ductile_nodes"
_LETTERS = frozenset(news.value for news in NodeNews)
_OWN = frozenset({NodeNews.NOTICES, NodeNews.FOLLOWS})
"""What a node notifies itself of too: after its own FOLLOWS, every later notice is sent to it."""
SEND_INTERVAL = 0.02
"""Seconds between two wake-ups of one node."""
LOOK_INTERVAL = 0.02
"""Seconds between two looks: with many nodes, many wake-ups cost one look."""
SHORT_POLL = 0.05
POLL, QUIET_POLL = 1.0, 5.0
"""Seconds between two looks without news, while the stream is followed or not."""
RECONNECT = 1.0
ANSWER_TIMEOUT = 5.0
"""Seconds for one statement."""
FOLLOW_SECONDS = 10.0
"""For how long a node that follows the stream is sent wake-ups."""
FOLLOW_AGAIN = 4.0
"""Seconds after which it says again that it follows."""


class PgNotifier:
    """Wakes the other nodes, and calls `reader` when they wake this one."""

    def __init__(self, url: str, reader: NewsReader, deadlines: ConnectionDeadlines) -> None:
        self._url, self._reader, self._deadlines = url, reader, deadlines
        self._posted, self._ended = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._news: set[NodeNews] = set()
        self._followed_until = 0.0
        """Until when another node wants to know of notices."""
        self._said_at = -FOLLOW_SECONDS
        self._sender_pid = 0
        self._connections: list[psycopg.Connection] = []
        self._end_fd = os.eventfd(0, os.EFD_CLOEXEC)
        """Readable from the end on, for the thread that waits for news."""
        self._threads = [
            threading.Thread(target=self._run, args=(loop,), name=name, daemon=True)
            for name, loop in (("pg-notify", self._send), ("pg-listen", self._receive))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post_notices(self) -> None:
        """A commit has written notices: wake the nodes that follow them, this one too."""
        if self._reader.is_followed():
            self.follow()
            self.post(NodeNews.NOTICES)
        elif time.monotonic() < self._followed_until:
            self.post(NodeNews.NOTICES)

    def post(self, news: NodeNews) -> None:
        """Wake the other nodes."""
        with self._lock:
            self._news.add(news)
        self._posted.set()

    def follow(self) -> None:
        """Have the other nodes send wake-ups for notices, if this one follows the stream."""
        now = time.monotonic()
        if now - self._said_at > FOLLOW_AGAIN and self._reader.is_followed():
            self._said_at = now
            self.post(NodeNews.FOLLOWS)

    def abort(self) -> None:
        """End without waiting for a server that does not answer."""
        self._end()
        for connection in list(self._connections):
            abort_connection(connection)

    def stop(self) -> None:
        self._end()
        for thread in self._threads:
            thread.join()
        os.close(self._end_fd)

    def _end(self) -> None:
        self._ended.set()
        self._posted.set()
        os.eventfd_write(self._end_fd, 1)

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
        self._sender_pid = connection.info.backend_pid
        while not self._ended.is_set():
            self._posted.wait()
            self._posted.clear()
            self._notify(connection)
            self._ended.wait(SEND_INTERVAL)

    def _notify(self, connection: psycopg.Connection) -> None:
        with self._lock:
            news, self._news = self._news, set()
        try:
            with self._deadlines.limit(connection, ANSWER_TIMEOUT):
                connection.execute(_NOTIFY, ("".join(sorted(news)),))
        except psycopg.Error:
            with self._lock:
                self._news |= news
            self._posted.set()
            raise

    def _receive(self, connection: psycopg.Connection) -> None:
        with self._deadlines.limit(connection, ANSWER_TIMEOUT):
            connection.execute(_LISTEN)
        # Whatever was sent without this connection was missed.
        news, look_at = {NodeNews.READY, NodeNews.REQUESTS}, 0.0
        while not self._ended.is_set():
            self._tell(news)
            now = time.monotonic()
            is_followed = self._reader.is_followed()
            has_notices = is_followed and not news.isdisjoint(_OWN)
            if has_notices or now >= look_at:
                self.follow()
                poll = POLL if is_followed else QUIET_POLL
                look_at = now + (SHORT_POLL if self._reader.read_notices() else poll)
            if has_notices:
                self._ended.wait(LOOK_INTERVAL)
            news = self._wait_for_news(connection, max(0.0, look_at - time.monotonic()))

    def _wait_for_news(self, connection: psycopg.Connection, seconds: float) -> set[NodeNews]:
        news = self._take_news(connection)
        if not news and seconds:
            # Not by the driver, which wakes up ten times per second meanwhile.
            waiting = select.poll()
            waiting.register(connection.fileno(), select.POLLIN)
            waiting.register(self._end_fd, select.POLLIN)
            waiting.poll(seconds * 1000)
            news = self._take_news(connection)
        return news

    def _take_news(self, connection: psycopg.Connection) -> set[NodeNews]:
        return {
            NodeNews(letter)
            for notify in connection.notifies(timeout=0)
            for letter in notify.payload
            if letter in _LETTERS and (letter in _OWN or notify.pid != self._sender_pid)
        }

    def _tell(self, news: set[NodeNews]) -> None:
        if NodeNews.FOLLOWS in news:
            self._followed_until = time.monotonic() + FOLLOW_SECONDS
        if NodeNews.READY in news:
            self._reader.on_ready()
        if NodeNews.REQUESTS in news:
            self._reader.on_requests()
