"""The unix socket of a gateway: its file name, and how to reach it in any directory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET = "ductile.sock"
LONGEST_PATH = 107
"""Bytes that the kernel allows in the address of a socket, without the final zero."""


@contextmanager
def short_address(path: Path) -> Iterator[str]:
    """An address that the kernel accepts for the socket at `path`, valid inside the block.

    A long path is replaced by one through a descriptor of its directory. `OSError` if there is no
    such directory.
    """
    if len(os.fsencode(path)) <= LONGEST_PATH:
        yield str(path)
        return
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
