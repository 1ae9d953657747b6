"""Which processes hold a file, found without opening it.

Opening a file of the ledger without SQLite and closing it again would drop SQLite's locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

FIRST_READER, LAST_READER = 123, 127
"""Bytes of a `-shm` file: each is a lock that readers share during a transaction."""


def holders(path: Path) -> set[int]:
    """The other processes that have the file open, as far as this user can see.

    A lock taken with `flock` is held by every process that inherited its descriptor, while the
    kernel still names the process that took it.
    """
    wanted = path.resolve()
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    return {pid for pid in pids - {os.getpid()} if wanted in _opened_by(pid)}


def _opened_by(pid: int) -> Iterator[Path]:
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            yield descriptor.readlink()
    except OSError:
        return  # It has ended, or belongs to another user.


def wal_readers(ledger: Path) -> set[int]:
    """The processes that hold a read transaction on a SQLite ledger now."""
    try:
        inode = ledger.with_name(f"{ledger.name}-shm").stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        # `1: POSIX  ADVISORY  READ 4000 fe:00:1234 124 124`; a waiting process has an arrow.
        words = line.split()
        if len(words) == 8 and words[1] == "POSIX" and words[5].endswith(f":{inode}"):
            first, last = int(words[6]), words[7]
            if first >= FIRST_READER and last != "EOF" and int(last) <= LAST_READER:
                found.add(int(words[4]))
    return found
