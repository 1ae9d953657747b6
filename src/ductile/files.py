"""Creates directories and files that only their owner can access."""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE = 0o700


def create(path: Path) -> None:
    """Create a directory and its missing parents with mode 0700, whatever the umask.

    An existing directory is not changed.
    """
    for step in (*reversed(path.parents), path):
        if step.is_dir():
            continue
        try:
            step.mkdir(PRIVATE)
        except FileExistsError:
            if not step.is_dir():
                raise
        else:
            step.chmod(PRIVATE)


def write_new(path: Path, data: bytes, *, executable: bool = False) -> None:
    """Write a new file; `FileExistsError` if it exists."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE if executable else PRIVATE & ~0o100)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
