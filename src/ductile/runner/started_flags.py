"""The flags by which a slot notes which launches it starts, and the deadline of the node's lease.

A flag is one byte of the started log (`engine/dispatch/started_log.py`), in memory that is shared
with the file: to set it takes no system call, and no lock that other slots wait for. Where the file
system has no room for the byte, the slot dies before it spawns. The head of the file has the time
until which the gateway may run jobs: a gateway that is stopped alone cannot end them itself.
"""

from __future__ import annotations

import mmap
import time
from struct import Struct

NO_ENTRY = -1
"""In place of an entry: the launch has none in the started log."""
STARTED = 1
DEADLINE = Struct("<d")
"""When jobs must have ended, on the monotonic clock, unless the gateway extends it; 0 for never."""
DEADLINE_AT = 120
"""Where the file has it: an aligned place, so that it is read as it was written."""

StartedFlags = mmap.mmap


def map_flags(fd: int) -> StartedFlags:
    """Map a whole file."""
    return mmap.mmap(fd, 0)


def is_past_deadline(flags: StartedFlags | None) -> bool:
    """Whether another node may start the jobs that the gateway sends: it is stopped, or hangs."""
    if flags is None:
        return False
    deadline: float = DEADLINE.unpack_from(flags, DEADLINE_AT)[0]
    return 0 < deadline <= time.monotonic()
