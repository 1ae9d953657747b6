"""The last boot of this state directory: the holder of the instance lock knows that it ended."""

from __future__ import annotations

import os
from pathlib import Path

from ductile.files import open_new

LONGEST = 100


def read_last_boot(state_dir: Path) -> str | None:
    """The recorded boot; None if there is none, or a power loss destroyed the record."""
    try:
        with _path(state_dir).open(encoding="ascii") as file:
            return file.read(LONGEST).strip() or None
    except (OSError, ValueError):
        return None


def write_last_boot(state_dir: Path, boot: str) -> None:
    """Call after the last boot is recovered, and before anything is claimed."""
    path = _path(state_dir)
    fresh = path.with_suffix(".new")
    with os.fdopen(open_new(fresh), "w", encoding="ascii") as file:
        file.write(f"{boot}\n")
    fresh.rename(path)


def _path(state_dir: Path) -> Path:
    return state_dir / "last.boot"
