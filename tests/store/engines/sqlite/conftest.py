"""A ledger on SQLite, its connections, and a disk that fails on request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from ductile.store.engines.sqlite import SqliteLedger
from tests.store.engines.sqlite.harness import Disk


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk(f"disk-{id(object())}")
    apsw.set_default_vfs(disk.name)
    yield disk
    apsw.set_default_vfs("unix")
    disk.unregister()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "state.db"


@pytest.fixture
def connections() -> Iterator[list[apsw.Connection]]:
    """The connections that are opened from now on; a ledger's first one is the writer's."""
    opened: list[apsw.Connection] = []
    apsw.connection_hooks.append(opened.append)
    yield opened
    apsw.connection_hooks.remove(opened.append)


@pytest.fixture
def ledger(path: Path, connections: list[apsw.Connection]) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(path)
    ledger.start()
    yield ledger
    ledger.close()
