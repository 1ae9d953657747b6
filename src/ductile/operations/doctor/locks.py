"""Who holds a file, found without opening it.

A process that opened the ledger's files beside SQLite and closed them again would drop
SQLite's own locks.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

FIRST_READER, LAST_READER = 123, 127
"""Bytes of a `-shm` file: each is a place for readers, who share it for a transaction's time."""


def holders(path: Path) -> set[int]:
    """The processes, other than this one, that have the file open, as far as we may see.

    A lock that was taken with `flock` belongs to whoever inherited its descriptor, while the
    kernel goes on to name the process that took it.
    """
    wanted = path.resolve()
    pids = {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()}
    return {pid for pid in pids - {os.getpid()} if wanted in _opened_by(pid)}


def _opened_by(pid: int) -> Iterator[Path]:
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            yield descriptor.readlink()
    except OSError:
        return  # It has ended, or is none of ours.


def wal_readers(ledger: Path) -> set[int]:
    """The processes that hold a read transaction on a SQLite ledger now."""
    try:
        inode = ledger.with_name(f"{ledger.name}-shm").stat().st_ino
        lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return set()
    found = set()
    for line in lines:
        # `1: POSIX  ADVISORY  READ 4000 fe:00:1234 124 124`; one who waits has an arrow.
        words = line.split()
        if len(words) == 8 and words[1] == "POSIX" and words[5].endswith(f":{inode}"):
            first, last = int(words[6]), words[7]
            if first >= FIRST_READER and last != "EOF" and int(last) <= LAST_READER:
                found.add(int(words[4]))
    return found
