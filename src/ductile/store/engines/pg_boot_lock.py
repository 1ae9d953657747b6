"""The session whose advisory locks show which boots are alive.

The server frees a session's locks as soon as the session ends. A restarted server or a network
outage ends it without a message to the client, so that the holder has to check it regularly.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg
from psycopg_pool import ConnectionPool

from ductile.errors import LedgerBusy
from ductile.store.engines.api import Effects, Work
from ductile.store.engines.pg_connection import (
    CONNECT_TIMEOUT,
    Session,
    set_server_keepalives,
)
from ductile.store.engines.pg_deadlines import ConnectionDeadlines
from ductile.store.engines.pg_tx import PostgresTx

POOL_TIMEOUT = 1.0
ANSWER_TIMEOUT = 2.0
"""Seconds for one statement on this session. A node must prove that it is alive within eight."""
LOCK_TIMEOUT_MS = 1000
"""Milliseconds to wait for a row: less than for an answer, so that the session is kept."""
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"

T = TypeVar("T")
Pool = ConnectionPool[Session]


class BootLock:
    """Holds the locks of boot ids. Thread-safe."""

    def __init__(
        self, address: str, pool: Pool, key: Callable[[str], str], deadlines: ConnectionDeadlines
    ) -> None:
        self._address, self._pool, self._key = address, pool, key
        self._deadlines = deadlines
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._is_pooled = False
        self._wanted: set[str] = set()
        self._held: set[str] = set()
        """The boots that the current session has locked."""

    def claim(self, boot: str) -> None:
        """Hold `boot` from now on; if it is held already, make sure that it still is.

        Raises `LedgerBusy` if it cannot be held: the server does not answer, or another session
        holds it (this process's previous session, before the server has noticed its loss; or a
        node that is recovering this boot's jobs).
        """
        with self._lock:
            self._wanted.add(boot)
            if self._session is not None and not self._answers(self._session):
                self._drop_session()
            try:
                self._lock_boots()
            except psycopg.Error as error:
                self._drop_session()
                raise LedgerBusy(f"cannot hold the lock of this boot: {error}") from error

    def write(self, work: Work[T]) -> tuple[T, Effects]:
        """Commit a short transaction on the session that holds the boots."""
        with self._lock:
            if self._session is None:
                raise LedgerBusy("no session holds the lock of this boot")
            with (
                self._deadlines.limit(self._session, ANSWER_TIMEOUT),
                self._session.transaction(),
            ):
                self._session.execute(f"SET LOCAL lock_timeout = {LOCK_TIMEOUT_MS}")
                tx = PostgresTx(self._session)
                result = work(tx)
                tx.write_rows()
            return result, tx.effects

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                # The server ends a session some time after its connection; this is immediate.
                with (
                    contextlib.suppress(psycopg.Error),
                    self._deadlines.limit(self._session, ANSWER_TIMEOUT),
                ):
                    self._session.execute("SELECT pg_advisory_unlock_all()")
            self._drop_session()

    def _answers(self, session: Session) -> bool:
        try:
            with self._deadlines.limit(session, ANSWER_TIMEOUT):
                session.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _lock_boots(self) -> None:
        if self._session is None:
            self._session, self._is_pooled = self._connect()
        for boot in self._wanted - self._held:
            with self._deadlines.limit(self._session, ANSWER_TIMEOUT):
                row = self._session.execute(_TRY_LOCK, (self._key(boot),)).fetchone()
            if not (row and row[0]):
                raise LedgerBusy("another session holds this boot")
            self._held.add(boot)

    def _connect(self) -> tuple[Session, bool]:
        """A session, and whether it belongs to the pool.

        A node that can claim jobs must be able to hold its boot: if the server refuses another
        session, one of the pool's is used.
        """
        try:
            session = psycopg.connect(
                self._address, autocommit=True, connect_timeout=CONNECT_TIMEOUT
            )
        except psycopg.OperationalError as refused:
            try:
                pooled = self._pool.getconn(POOL_TIMEOUT)
            except psycopg.OperationalError:
                raise refused from None
            pooled.autocommit = True
            return pooled, True
        try:
            with self._deadlines.limit(session, ANSWER_TIMEOUT):
                set_server_keepalives(session)
        except psycopg.Error:
            session.close()
            raise
        return session, False

    def _drop_session(self) -> None:
        session, self._session = self._session, None
        self._held.clear()
        if session is not None:
            session.close()
            if self._is_pooled:
                # The pool replaces a connection that comes back closed.
                self._pool.putconn(session)
