"""Which boot had this state directory last: whoever has the instance lock knows that it ended."""

from __future__ import annotations

import os
from pathlib import Path

LONGEST = 100


def last(state_dir: Path) -> str | None:
    """The boot that was remembered; None where none was, or its power went too soon."""
    try:
        with _path(state_dir).open(encoding="ascii") as file:
            return file.read(LONGEST).strip() or None
    except (OSError, ValueError):
        return None


def remember(state_dir: Path, boot: str) -> None:
    """To be called once what the last one left is seen to, and before anything is claimed."""
    path = _path(state_dir)
    fresh = path.with_suffix(".new")
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="ascii") as file:
        file.write(f"{boot}\n")
    fresh.rename(path)


def _path(state_dir: Path) -> Path:
    return state_dir / "last.boot"
