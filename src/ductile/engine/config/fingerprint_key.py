"""The key with which secrets are fingerprinted, created at its first use."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ductile.files import open_new

LENGTH = 32


def fingerprint_key(state_dir: Path) -> bytes:
    """The key of this state directory's secret fingerprints; made at first use, 0600."""
    path = state_dir / "fingerprint.key"
    try:
        key = path.read_bytes()
    except FileNotFoundError:
        key = secrets.token_bytes(LENGTH)
        fresh = path.with_suffix(".new")
        fd = open_new(fresh)
        try:
            os.write(fd, key)
            os.fsync(fd)
        finally:
            os.close(fd)
        fresh.rename(path)
    return key.ljust(LENGTH, b"\0")[:LENGTH]
