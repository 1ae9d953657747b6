"""The directories that we make."""

from __future__ import annotations

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
