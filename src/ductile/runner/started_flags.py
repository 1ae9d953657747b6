"""The flags by which a slot notes which launches it starts.

A flag is one byte of the started log (`engine/dispatch/started_log.py`), in memory that is shared
with the file: to set it takes no system call, and no lock that other slots wait for. Where the file
system has no room for the byte, the slot dies before it spawns.
"""

from __future__ import annotations

import mmap

NO_ENTRY = -1
"""In place of an entry: the launch has none in the started log."""
STARTED = 1

StartedFlags = mmap.mmap


def map_flags(fd: int) -> StartedFlags:
    """Map a whole file."""
    return mmap.mmap(fd, 0)
