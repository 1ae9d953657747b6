"""Readers: snapshots, damaged files, and connections per thread."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerError
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
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


def test_reader_is_closed_when_its_thread_ends(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()

    def opened() -> int:
        found = [os.path.realpath(fd.path) for fd in os.scandir("/proc/self/fd")]
        return sum(name.startswith(str(path)) for name in found)

    def read_by_another_thread() -> None:
        thread = threading.Thread(target=exists, args=(ledger, "p"))
        thread.start()
        thread.join(WAIT_LIMIT)

    # SQLite keeps the descriptor of the first reader for later ones.
    read_by_another_thread()
    before = opened()
    for _ in range(5):
        read_by_another_thread()
    assert opened() == before
    ledger.close()


def test_read_only_ledger_works_alongside_the_writer(ledger: SqliteLedger, path: Path) -> None:
    ledger.write(put("p"))
    reader = SqliteLedger(path, read_only=True)
    reader.start()
    assert exists(reader, "p")
    reader.close()
    ledger.write(put("q"))
