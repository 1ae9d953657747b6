"""Temporary directories in memory: most tests write files and wait until they are on the disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
NEEDED = 4 * 1024**3
"""Bytes for the files of all workers, and for their PostgreSQL servers."""


def find_fast_directory() -> str | None:
    """A directory in memory if it has room and may hold programs; else None, for the default."""
    if not MEMORY.is_dir() or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    return str(MEMORY) if shutil.disk_usage(MEMORY).free > NEEDED else None


def use_fast_directory() -> None:
    """For this process and those that it starts, unless TMPDIR names another one."""
    found = find_fast_directory()
    if found is not None and "TMPDIR" not in os.environ:
        os.environ["TMPDIR"] = tempfile.tempdir = found
