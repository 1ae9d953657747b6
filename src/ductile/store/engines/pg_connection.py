"""Connection settings for PostgreSQL: how a lost server or a lost client is noticed soon."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ductile.errors import LedgerError

CONNECT_TIMEOUT = 3
KEEPALIVE_IDLE, KEEPALIVE_INTERVAL, KEEPALIVE_COUNT = 3, 2, 3
"""Seconds of silence, seconds between probes, and probes: a peer counts as lost after nine
seconds."""
USER_TIMEOUT_MS = (KEEPALIVE_IDLE + KEEPALIVE_INTERVAL * KEEPALIVE_COUNT) * 1000
"""Milliseconds after which unacknowledged data ends a connection."""
_SET_SERVER_KEEPALIVES = """
SELECT set_config('tcp_keepalives_idle', %s, false),
       set_config('tcp_keepalives_interval', %s, false),
       set_config('tcp_keepalives_count', %s, false),
       set_config('tcp_user_timeout', %s, false)
"""

Session = psycopg.Connection[tuple[Any, ...]]


def with_keepalives(url: str) -> str:
    """The address with our keepalive settings, except those that it sets itself."""
    ours = {
        "keepalives_idle": KEEPALIVE_IDLE,
        "keepalives_interval": KEEPALIVE_INTERVAL,
        "keepalives_count": KEEPALIVE_COUNT,
        "tcp_user_timeout": USER_TIMEOUT_MS,
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
    values = (str(idle), str(interval), str(count), str(USER_TIMEOUT_MS))
    session.execute(_SET_SERVER_KEEPALIVES, values)
    if not session.autocommit:
        session.commit()


def abort_connection(session: Session) -> None:
    """Shut down the socket, so that a thread that waits for the server's answer gets an error."""
    with (
        contextlib.suppress(OSError, psycopg.Error),
        socket.socket(fileno=os.dup(session.fileno())) as line,
    ):
        line.shutdown(socket.SHUT_RDWR)
