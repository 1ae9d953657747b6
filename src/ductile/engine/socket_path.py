"""The socket on which a gateway answers its own machine: its name, and how long a path it has."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = "ductile.sock"
LONGEST_PATH = 107
"""Bytes that the kernel takes, with a zero behind them."""


def too_long(path: Path) -> str | None:
    """Why no gateway can listen on a socket of this path, and the way out."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return None
    what = f"the socket's path is longer than {LONGEST_PATH} bytes: {path}"
    return f"{what}; set state.path (with state.url, state.dir) to one in a shorter directory"
