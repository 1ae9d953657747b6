"""The directories and files that we make: their owner's alone."""

from __future__ import annotations

import os
from pathlib import Path

PRIVATE = 0o700


def create(path: Path) -> None:
    """Make a directory where there is none, with all that is missing above it.

    Each that is made is its owner's alone, whatever the umask; one that exists is left as it is.
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
    """Write a file that is not there yet; `FileExistsError` where it is."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(path, flags, PRIVATE if executable else PRIVATE & ~0o100)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
