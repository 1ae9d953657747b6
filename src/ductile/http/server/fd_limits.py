"""The number of file descriptors of this process, and the share of them for connections."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from ductile.http.server.connection_limit import MAX_CONNECTIONS

OPEN_DESCRIPTORS = Path("/proc/self/fd")
WANTED_LIMIT = 65_536
RESERVED = 256
"""For the ledger's readers, worker slots, deliveries and backups; at most half of what is free."""


def raise_limit() -> None:
    """Raise the soft limit as far as allowed and needed. Children inherit it: see `RunnerPool`."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = min(hard, WANTED_LIMIT)
    if RLIM_INFINITY not in (soft, hard) and soft < wanted:
        # Where the system refuses, the limit stays as it was.
        with suppress(OSError, ValueError):
            setrlimit(RLIMIT_NOFILE, (wanted, hard))


def connections_per_listener(listeners: int) -> int:
    """Return the number of connections that each of the listeners may have."""
    limit = getrlimit(RLIMIT_NOFILE)[0]
    if limit == RLIM_INFINITY:
        return MAX_CONNECTIONS
    free = max(limit - sum(1 for _ in OPEN_DESCRIPTORS.iterdir()), 0)
    shared = free - min(RESERVED, free // 2)
    return max(min(shared // listeners, MAX_CONNECTIONS), 1)
