"""The session whose advisory locks show which boots are alive.

The server frees a session's locks as soon as the session ends. A restarted server or a network
outage ends it without a message to the client, so that the holder has to check it regularly.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import ConnectionPool

from ductile.errors import LedgerBusy, LedgerError
from ductile.store.engines.api import Effects, Work
from ductile.store.engines.open import name_application
from ductile.store.engines.pg.connection import CONNECT_TIMEOUT, Session, set_server_keepalives
from ductile.store.engines.pg.deadlines import ConnectionDeadlines
from ductile.store.engines.pg.tx import PostgresTx, lock_key

POOL_TIMEOUT = 1.0
ANSWER_TIMEOUT = 2.0
"""Seconds for one statement on this session. A node must prove that it is alive within eight."""
LOCK_TIMEOUT_MS = 1000
"""Milliseconds to wait for a row: less than for an answer, so that the session is kept."""
_TRY_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
_END_SESSIONS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND (
  starts_with(application_name, %(application)s)
  OR pid IN (SELECT pid FROM pg_locks
             WHERE locktype = 'advisory' AND objsubid = 1 AND granted
               AND (CAST(classid AS bigint) << 32) | CAST(objid AS bigint)
                   = hashtextextended(%(key)s, 0)))
"""

T = TypeVar("T")
Pool = ConnectionPool[Session]


class BootLock:
    """Holds the locks of boot ids. Thread-safe."""

    def __init__(self, address: str, pool: Pool, deadlines: ConnectionDeadlines) -> None:
        self._address, self._pool, self._deadlines = address, pool, deadlines
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
                row = self._session.execute(_TRY_LOCK, (boot_key(boot),)).fetchone()
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


def is_dead(connection: Session, boot: str) -> bool:
    """Whether no session holds the lock of the boot."""
    # Shared, so that two nodes that check at once do not take each other for the holder.
    row = connection.execute(
        "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%(key)s, 0))",
        {"key": boot_key(boot)},
    ).fetchone()
    connection.commit()
    return bool(row and row[0])


def end_sessions(connection: Session, boot: str) -> int:
    """End the sessions of a node that does not answer, so that its lock becomes free."""
    values = {"key": boot_key(boot), "application": name_application(boot)}
    try:
        count = len(connection.execute(_END_SESSIONS, values).fetchall())
    except errors.InsufficientPrivilege as error:
        raise LedgerError(
            "the database user may not end the sessions of another node; let all nodes use "
            f"the same user, or grant pg_signal_backend: {error}"
        ) from error
    connection.commit()
    return count


def boot_key(boot: str) -> str:
    """The key of `Tx.hold("boot", ...)` too: the node that recovers a boot's jobs holds it."""
    return lock_key("boot", boot)
