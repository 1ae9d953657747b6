"""The session whose locks say which boots live, and how a lost server or client is noticed.

A lock of a session is free the moment that the server ends the session. Whoever holds one for
long has to look after it: a server that was restarted, and a network that was away, end it
without a word.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool

from ductile.errors import LedgerBusy, LedgerError

CONNECT_WITHIN = 3
POOLED_WITHIN = 1.0
IDLE, APART, PROBES = 3, 2, 3
"""Seconds of silence, seconds between probes and their number: after nine a peer is gone."""
UNANSWERED = (IDLE + APART * PROBES) * 1000
"""Milliseconds after which what was sent and never acknowledged ends a connection."""
TRY = "SELECT pg_try_advisory_lock(hashtextextended(%s, 0))"
SERVER_SIDE = """
SELECT set_config('tcp_keepalives_idle', %s, false),
       set_config('tcp_keepalives_interval', %s, false),
       set_config('tcp_keepalives_count', %s, false),
       set_config('tcp_user_timeout', %s, false)
"""

Session = psycopg.Connection[tuple[Any, ...]]
Pool = ConnectionPool[Session]


def attentive(url: str) -> str:
    """The same address; what it does not say itself of keepalives, we say."""
    ours = {
        "keepalives_idle": IDLE,
        "keepalives_interval": APART,
        "keepalives_count": PROBES,
        "tcp_user_timeout": UNANSWERED,
    }
    try:
        return make_conninfo("", **{**ours, **conninfo_to_dict(url)})
    except psycopg.ProgrammingError:
        # What is wrong with it quotes it, and with it a password.
        raise LedgerError("state.url is not the address of a PostgreSQL database") from None


def watch_client(session: Session) -> None:
    """Have the server end this session soon after our machine has lost its power.

    Without this it keeps our locks, of rows too, for two hours.
    """
    session.execute(SERVER_SIDE, (str(IDLE), str(APART), str(PROBES), str(UNANSWERED)))
    if not session.autocommit:
        session.commit()


def hang_up(session: Session) -> None:
    """Whoever waits for the server's answer waits no longer."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(session.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)


class BootSession:
    """Holds boot ids. Thread-safe."""

    def __init__(self, address: str, pool: Pool, key: Callable[[str], str]) -> None:
        self._address, self._pool, self._key = address, pool, key
        self._lock = threading.Lock()
        self._session: Session | None = None
        self._lent = False
        self._boots: set[str] = set()
        """What is to be held."""
        self._held: set[str] = set()
        """What this session holds."""

    def claim(self, boot: str) -> None:
        """Hold `boot` from now on; where it is held already, make sure that it still is.

        `LedgerBusy` where it is not held: the server does not answer, or another session holds
        it (our own last one, of which the server does not know yet that it is lost; or a node
        that sees to what this boot left behind).
        """
        with self._lock:
            self._boots.add(boot)
            if self._session is not None and not self._answers(self._session):
                self._drop()
            try:
                self._hold()
            except psycopg.Error as error:
                self._drop()
                raise LedgerBusy(f"this boot cannot be held: {error}") from error

    def hang_up(self) -> None:
        """Without the lock: whoever waits for the server holds it."""
        session = self._session
        if session is not None:
            hang_up(session)

    def close(self) -> None:
        with self._lock:
            if self._session is not None:
                # The server ends a session some time after its connection; a lock goes at once.
                with contextlib.suppress(psycopg.Error):
                    self._session.execute("SELECT pg_advisory_unlock_all()")
            self._drop()

    def _answers(self, session: Session) -> bool:
        try:
            session.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def _hold(self) -> None:
        if self._session is None:
            self._session, self._lent = self._connected()
        for boot in self._boots - self._held:
            row = self._session.execute(TRY, (self._key(boot),)).fetchone()
            if not (row and row[0]):
                raise LedgerBusy("another session holds this boot")
            self._held.add(boot)

    def _connected(self) -> tuple[Session, bool]:
        """A session, and whether it is one of the pool's.

        A node that can claim jobs must be able to hold its boot: where the server grants no
        further session, one of those that claim has to do.
        """
        try:
            session = psycopg.connect(
                self._address, autocommit=True, connect_timeout=CONNECT_WITHIN
            )
        except psycopg.OperationalError as refused:
            try:
                pooled = self._pool.getconn(POOLED_WITHIN)
            except psycopg.OperationalError:
                raise refused from None
            pooled.autocommit = True
            return pooled, True
        try:
            watch_client(session)
        except psycopg.Error:
            session.close()
            raise
        return session, False

    def _drop(self) -> None:
        session, self._session = self._session, None
        self._held.clear()
        if session is not None:
            session.close()
            if self._lent:
                # Closed: the pool makes itself another.
                self._pool.putconn(session)
