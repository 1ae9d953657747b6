"""Readers: snapshots, damaged files, and the connections that threads share."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerError
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import IDLE_READERS, SqliteLedger
from tests.store.engines.sqlite.harness import exists, put
from tests.waiting import WAIT_LIMIT


def test_reader_sees_only_committed_rows(ledger: SqliteLedger) -> None:
    seen: list[bool] = []

    def work(tx: Any) -> None:
        put("p")(tx)
        reader = threading.Thread(target=lambda: seen.append(exists(ledger, "p")))
        reader.start()
        reader.join(WAIT_LIMIT)

    ledger.write(work)
    assert seen == [False]
    assert exists(ledger, "p")


def test_read_uses_one_snapshot(ledger: SqliteLedger) -> None:
    def work(tx: Any) -> tuple[Any, Any]:
        before = tx.one("state_of", plugin="p")
        ledger.write(put("p"))
        return before, tx.one("state_of", plugin="p")

    assert ledger.read(work) == (None, None)
    assert exists(ledger, "p")


def test_read_cannot_write(ledger: SqliteLedger) -> None:
    with pytest.raises(apsw.ReadOnlyError):
        ledger.read(put("p"))
    assert not exists(ledger, "p")


def test_reader_is_usable_after_a_failed_read(ledger: SqliteLedger) -> None:
    def fails(tx: Any) -> None:
        raise ValueError

    with pytest.raises(ValueError):
        ledger.read(fails)
    assert not exists(ledger, "p")


def test_unreadable_file_is_a_ledger_error(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.close()
    page = 4096
    path.write_bytes(path.read_bytes()[:page] + b"\xff" * (path.stat().st_size - page))
    ledger = SqliteLedger(path, read_only=True)
    with pytest.raises(LedgerError, match="cannot be used"):
        exists(ledger, "p")
    ledger.close()


def is_closed(connection: apsw.Connection) -> bool:
    try:
        connection.changes()
    except apsw.ConnectionClosedError:
        return True
    return False


def test_file_that_is_not_a_database_is_refused_and_closed(
    path: Path, connections: list[apsw.Connection]
) -> None:
    path.parent.mkdir()
    path.write_bytes(os.urandom(10_000))
    with pytest.raises(LedgerError, match=r"cannot be used: .*ductile system restore"):
        open_ledger(path=path, url=None)
    assert connections
    assert all(map(is_closed, connections))


def test_file_with_a_damaged_schema_is_refused_and_closed(
    path: Path, connections: list[apsw.Connection]
) -> None:
    open_ledger(path=path, url=None).close()
    damaged = bytearray(path.read_bytes())
    damaged[100:4096] = b"\xff" * 3996
    path.write_bytes(damaged)
    with pytest.raises(LedgerError, match=r"cannot be used: .*ductile system restore"):
        open_ledger(path=path, url=None)
    assert all(map(is_closed, connections))


def read_by_threads(ledger: SqliteLedger, number: int) -> None:
    """Read by this number of threads at the same time."""
    barrier = threading.Barrier(number, timeout=WAIT_LIMIT)
    work = [
        threading.Thread(target=ledger.read, args=(lambda tx: barrier.wait(),))
        for _ in range(number)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join(WAIT_LIMIT)
    assert not barrier.broken


def test_threads_share_readers_and_few_are_kept(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    before = len(connections)
    for _ in range(3):
        read_by_threads(ledger, 1)
    assert len(connections) == before + 1
    read_by_threads(ledger, IDLE_READERS + 2)
    readers = connections[before:]
    assert len(readers) == IDLE_READERS + 2
    assert [is_closed(reader) for reader in readers].count(False) == IDLE_READERS
    read_by_threads(ledger, IDLE_READERS)
    assert len(connections) == before + len(readers)
    ledger.close()
    assert all(map(is_closed, readers))


def test_read_only_ledger_works_alongside_the_writer(ledger: SqliteLedger, path: Path) -> None:
    ledger.write(put("p"))
    reader = SqliteLedger(path, read_only=True)
    reader.start()
    assert exists(reader, "p")
    reader.close()
    ledger.write(put("q"))
