"""Connection settings for PostgreSQL: how a lost server or a lost client is noticed soon."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg_pool import ConnectionPool
from psycopg_pool.pool import AddConnection, MaintenanceTask

from ductile.errors import LedgerError

CONNECT_TIMEOUT = 3
RECONNECT_SECONDS = 1.0
NEVER_GIVE_UP = 10 * 366 * 86_400.0
"""Seconds for which the pool tries to replace a lost connection."""
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 3, 2, 3
"""Seconds of silence, seconds between probes, and probes: a peer counts as lost after nine
seconds."""
USER_TIMEOUT_MS = (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT) * 1000
"""Milliseconds after which unacknowledged data ends a connection."""
EXECUTIONS_BEFORE_PREPARED = 1
"""After this number of executions on a connection, a statement is parsed and planned no more."""
IDLE_IN_TRANSACTION_MS = 30_000
"""Milliseconds after which the server ends the transaction, and with it the row locks, of a node
that was frozen between two statements."""
_SET_SERVER_KEEPALIVES = """
SELECT set_config('tcp_keepalives_idle', %s, false),
       set_config('tcp_keepalives_interval', %s, false),
       set_config('tcp_keepalives_count', %s, false),
       set_config('tcp_user_timeout', %s, false),
       set_config('idle_in_transaction_session_timeout', %s, false)
"""

Session = psycopg.Connection[tuple[Any, ...]]


class SteadyPool(ConnectionPool[Session]):
    """A pool that tries to reconnect every second, however long the server was away.

    It hands out the connection that was returned last: its server process has the plans and the
    catalog in its memory. The others are closed when they have not been in use for a while. One
    that the server has closed meanwhile is replaced: no call fails after a restart of the server.
    """

    def schedule_task(self, task: MaintenanceTask, delay: float) -> None:
        longest = RECONNECT_SECONDS if isinstance(task, AddConnection) else delay
        super().schedule_task(task, min(delay, longest))

    def _get_ready_connection(self, timeout: float | None) -> Session | None:
        """The lock of the pool is held. The base class takes the first."""
        while self._pool:
            self._pool.rotate(1)
            session = super()._get_ready_connection(timeout)
            if session is None or not _has_ended(session):
                return session
            self._close_connection(session)
            self.run_task(AddConnection(self))
        return super()._get_ready_connection(timeout)


def _has_ended(session: Session) -> bool:
    """Whether the server has closed an idle session: nothing else makes its socket readable."""
    if session.closed:
        return True
    ready = select.poll()
    ready.register(session.fileno(), select.POLLIN)
    return bool(ready.poll(0))


def with_keepalives(url: str, application: str = "ductile") -> str:
    """The address with our keepalive settings and application name, except where it sets them."""
    ours: dict[str, str | int] = {
        "application_name": application,
        "keepalives_idle": KEEPALIVE_IDLE,
        "keepalives_interval": KEEPALIVE_INTERVAL,
        "keepalives_count": KEEPALIVE_COUNT,
        "tcp_user_timeout": USER_TIMEOUT_MS,
        "connect_timeout": CONNECT_TIMEOUT,
    }
    try:
        return make_conninfo("", **{**ours, **conninfo_to_dict(url)})
    except psycopg.ProgrammingError:
        # The original message quotes the address, which may contain a password.
        raise LedgerError("state.url is not the address of a PostgreSQL database") from None


def set_server_keepalives(session: Session) -> None:
    """Let the server end this session soon after this machine has disappeared.

    Without this the server keeps the session's locks, row locks included, for two hours.
    """
    idle, interval, count = KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT
    values = (idle, interval, count, USER_TIMEOUT_MS, IDLE_IN_TRANSACTION_MS)
    session.execute(_SET_SERVER_KEEPALIVES, tuple(map(str, values)))
    if not session.autocommit:
        session.commit()


def configure_session(session: Session) -> None:
    """Prepare a connection of the pool for transactions."""
    session.prepare_threshold = EXECUTIONS_BEFORE_PREPARED
    set_server_keepalives(session)


def check_database(address: str) -> None:
    """Raise `LedgerError` if sessions do not persist, or the database cannot store every text.

    Without its session, no lock would prove that a node lives.
    """
    try:
        with (
            psycopg.connect(address, autocommit=True) as first,
            psycopg.connect(address, autocommit=True) as second,
        ):
            persists = has_own_session(first, second)
            encoding = first.info.parameter_status("server_encoding")
    except psycopg.OperationalError:
        # The server grants no further sessions; a pooler would have accepted them.
        return
    if not persists:
        raise LedgerError(
            "state.url leads to a pooler in transaction mode (pgbouncer), which does not keep "
            "sessions; use its session mode, or the address of the server"
        )
    if encoding != "UTF8":
        raise LedgerError(
            f"the database has the encoding {encoding}, which does not store every text; create it "
            "with ENCODING 'UTF8' TEMPLATE template0"
        )


def describe_refusal(address: str) -> str | None:
    """The server's or the system's own message on one line; the pool only reports a timeout."""
    try:
        with psycopg.connect(address, connect_timeout=CONNECT_TIMEOUT) as session:
            # A pooler in statement mode accepts the session and refuses its first transaction.
            configure_session(session)
    except psycopg.Error as error:
        return " ".join(str(error).split())
    return None


def has_own_session(first: Session, second: Session) -> bool:
    """Whether `first` keeps its session of the server while `second` has a transaction.

    A pooler in transaction mode gives the idle session of the first to the second. The pid that
    the driver knows is the pooler's; only the server knows its own.
    """
    before = _ask_pid(first)
    second.execute("BEGIN")
    other = _ask_pid(second)
    after = _ask_pid(first)
    second.execute("ROLLBACK")
    return before == after != other


def _ask_pid(session: Session) -> int:
    row = session.execute("SELECT pg_backend_pid()").fetchone()
    assert row is not None
    pid: int = row[0]
    return pid


def abort_connection(session: Session) -> None:
    """Shut down the socket, so that a thread that waits for the server's answer gets an error."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(session.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
