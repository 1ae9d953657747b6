"""Connections to a SQLite file, with the pragmas that the ledger needs."""

from __future__ import annotations

import threading
import weakref
from pathlib import Path
from time import monotonic

import apsw

from ductile.store.engines.sqlite_errors import translating_errors

BUSY_TIMEOUT_MS = 5_000
WAL_BYTES_KEPT = 16 * 1024 * 1024
CHECKPOINT_PAGES = 4000
"""WAL pages between checkpoints: a page that changes often is written to the file once per
checkpoint."""
IDLE_READERS = 8
"""Connections for reading that are kept. Each takes 0.3 MB for the schema and its pages."""
IDLE_SECONDS = 2.0
"""Seconds after which a connection that nobody needed is closed; one stays."""


def connect(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """Open a connection with the pragmas that every user of the ledger needs, or `LedgerError`."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if not read_only:
        flags |= apsw.SQLITE_OPEN_CREATE
    with translating_errors():
        connection = apsw.Connection(str(path), flags=flags)
        try:
            _configure(connection, read_only=read_only)
        except BaseException:
            connection.close()
            raise
    return connection


def _configure(connection: apsw.Connection, *, read_only: bool) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    # One plan for all values. Otherwise new values of some parameters cause a new plan each time.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("foreign_keys", True)
    if not read_only:
        # Has an effect only before the first table is created.
        connection.pragma("auto_vacuum", 2)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)


class ReaderPool:
    """Connections for reading. The last one used is the next one used, so that others fall idle."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: list[tuple[float, apsw.Connection]] = []
        """When each was put back; the one that has been idle for longest is the first."""
        self._lock = threading.Lock()
        self._open: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()

    def take(self) -> apsw.Connection:
        with self._lock:
            if self._idle:
                return self._idle.pop()[1]
        connection = connect(self._path, read_only=True)
        self._open.add(connection)
        return connection

    def put_back(self, connection: apsw.Connection) -> None:
        now, unneeded = monotonic(), None
        with self._lock:
            self._idle.append((now, connection))
            if len(self._idle) > IDLE_READERS or self._idle[0][0] < now - IDLE_SECONDS:
                unneeded = self._idle.pop(0)[1]
        if unneeded is not None:
            unneeded.close()

    def close(self) -> None:
        for connection in list(self._open):
            connection.close()
