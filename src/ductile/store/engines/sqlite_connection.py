"""Connections to a SQLite file, with the pragmas that the ledger needs."""

from __future__ import annotations

from pathlib import Path

import apsw

from ductile.store.engines.sqlite_errors import translating_errors

BUSY_TIMEOUT_MS = 5_000
WAL_BYTES_KEPT = 16 * 1024 * 1024
CHECKPOINT_PAGES = 4000
"""WAL pages between checkpoints: a page that changes often is written to the file once per
checkpoint."""


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
