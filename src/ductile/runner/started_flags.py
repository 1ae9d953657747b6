"""Where a slot notes what it begins: one byte of a file, read by `engine.dispatch.started_log`.

To set it takes no system call, and no lock that other slots wait for. Where the file cannot take
it, the slot dies of that, before it spawns.
"""

from __future__ import annotations

import mmap

NOWHERE = -1
"""The place of a launch that has no cell."""
BEGUN = 1

Cells = mmap.mmap


def mapped(fd: int) -> Cells:
    """All of a file."""
    return mmap.mmap(fd, 0)
