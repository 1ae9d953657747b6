"""The unix socket of a gateway: its file name, and the limit on the length of its path."""

from __future__ import annotations

import os
from pathlib import Path

SOCKET = "ductile.sock"
LONGEST_PATH = 107
"""Bytes that the kernel allows, without the final zero."""


def find_path_problem(path: Path) -> str | None:
    """Why a gateway cannot listen on this path, and what to do; None if it can."""
    if len(os.fsencode(path)) <= LONGEST_PATH:
        return None
    what = f"the socket's path is longer than {LONGEST_PATH} bytes: {path}"
    return f"{what}; set state.path (with state.url, state.dir) to one in a shorter directory"
