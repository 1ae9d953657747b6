"""Connections in use, each with a deadline by this machine's clock.

A connection whose peer does not answer while its packets are acknowledged (a proxy, a firewall, a
frozen server) is not noticed by TCP. One thread closes connections that are used for too long; the
waiting call gets an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ductile.store.engines.pg.connection import Session, abort_connection

CHECK_SECONDS = 0.5


class ConnectionDeadlines:
    """Thread-safe. `on_expiry` is called after a connection was closed because of its deadline."""

    def __init__(self, on_expiry: Callable[[], None]) -> None:
        self._on_expiry = on_expiry
        self._deadlines: dict[Session, float] = {}
        self._in_use, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pg-deadlines", daemon=True)
        self._starting = threading.Lock()

    @contextmanager
    def limit(self, session: Session, seconds: float) -> Iterator[None]:
        """Abort the connection if the block takes longer than `seconds`."""
        self._start()
        self._deadlines[session] = time.monotonic() + seconds
        self._in_use.set()
        try:
            yield
        finally:
            self._deadlines.pop(session, None)

    def abort_all(self) -> None:
        """Close every connection that is in use now."""
        for session in list(self._deadlines):
            abort_connection(session)

    def close(self) -> None:
        self._closed.set()
        self._in_use.set()

    def _start(self) -> None:
        if not self._thread.is_alive():
            with self._starting:
                if self._thread.ident is None:
                    self._thread.start()

    def _watch(self) -> None:
        while not self._closed.wait(CHECK_SECONDS):
            if not self._deadlines:
                self._in_use.clear()
                # Again, because a connection may have come into use before the flag was cleared.
                if not self._deadlines:
                    self._in_use.wait()
                continue
            now = time.monotonic()
            expired = [item for item in list(self._deadlines.items()) if item[1] <= now]
            for session, deadline in expired:
                # Unless it was returned and is used by another call by now.
                if self._deadlines.get(session) == deadline:
                    self._deadlines.pop(session, None)
                    abort_connection(session)
            if expired:
                self._on_expiry()
