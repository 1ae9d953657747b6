"""How many descriptors this process may hold, and how many of them are for connections."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit, setrlimit

from ductile.http.server.connection_limit import MOST_CONNECTIONS

OPEN = Path("/proc/self/fd")
ENOUGH = 65_536
RESERVE = 256
"""For the ledger's readers, slots, sends, copies; where that is too much, half of what is free."""


def raise_limit() -> None:
    """As far as we may, and need. Children inherit it: see `RunnerPool`."""
    soft, hard = getrlimit(RLIMIT_NOFILE)
    wanted = min(hard, ENOUGH)
    if RLIM_INFINITY not in (soft, hard) and soft < wanted:
        # It stays as it was where the system says otherwise.
        with suppress(OSError, ValueError):
            setrlimit(RLIMIT_NOFILE, (wanted, hard))


def places(doors: int) -> int:
    """For how many connections there is room at each of so many doors."""
    limit = getrlimit(RLIMIT_NOFILE)[0]
    if limit == RLIM_INFINITY:
        return MOST_CONNECTIONS
    free = max(limit - sum(1 for _ in OPEN.iterdir()), 0)
    shared = free - min(RESERVE, free // 2)
    return max(min(shared // doors, MOST_CONNECTIONS), 1)
