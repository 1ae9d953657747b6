"""A new SQLite ledger as a copy of one file: to migrate each would take longer than most tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from ductile.store.engines.sqlite import SqliteLedger


@cache
def _content() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state.db"
        ledger = SqliteLedger(path)
        ledger.start()
        ledger.close()
        return path.read_bytes()


def create_ledger(path: Path) -> None:
    """Write a ledger with all migrations to `path`."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(_content())
