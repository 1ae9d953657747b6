"""A ledger whose files are moved, deleted or replaced while it is open."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerError, LedgerMoved
from ductile.store.engines.sqlite import SqliteLedger


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    yield ledger
    ledger.close()


def add_boot(ledger: SqliteLedger, id: str) -> None:
    ledger.write(lambda tx: tx.run("insert_boot", id=id, pid=1, version="1", now="2026"))


def boots(path: Path) -> set[str]:
    connection = apsw.Connection(str(path))
    try:
        return {str(row[0]) for row in connection.execute("SELECT id FROM boots").fetchall()}
    finally:
        connection.close()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_moved_file_refuses_writes_until_it_is_back(
    ledger: SqliteLedger, tmp_path: Path, suffix: str
) -> None:
    add_boot(ledger, "before")
    file = ledger.path.with_name(ledger.path.name + suffix)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    with pytest.raises(LedgerMoved, match=f"moved to {elsewhere}.*move it back"):
        add_boot(ledger, "meanwhile")
    elsewhere.rename(file)
    add_boot(ledger, "after")
    ledger.close()
    assert boots(ledger.path) == {"before", "after"}


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_deleted_file_refuses_writes(ledger: SqliteLedger, suffix: str) -> None:
    ledger.path.with_name(ledger.path.name + suffix).unlink()
    with pytest.raises(LedgerMoved, match=r"was deleted while.*system restore"):
        add_boot(ledger, "lost")


def test_replaced_file_refuses_writes(ledger: SqliteLedger, tmp_path: Path) -> None:
    add_boot(ledger, "before")
    copy = tmp_path / "copy"
    shutil.copyfile(ledger.path, copy)
    copy.rename(ledger.path)
    with pytest.raises(LedgerMoved, match="deleted and replaced"):
        add_boot(ledger, "lost")


def test_file_with_a_second_name_is_not_a_moved_file(ledger: SqliteLedger, tmp_path: Path) -> None:
    (tmp_path / "second").hardlink_to(ledger.path)
    add_boot(ledger, "one")


def test_batches_are_refused_too(ledger: SqliteLedger, tmp_path: Path) -> None:
    ledger.path.rename(tmp_path / "elsewhere")
    errors: list[Any] = []
    ledger.write_batch(
        [(lambda tx: tx.one("has_ready"), lambda _result, error: errors.append(error))]
    )
    assert isinstance(errors[0], LedgerMoved)


@pytest.mark.parametrize("left", ["missing", "empty"])
def test_wal_without_its_database_refuses_to_open(tmp_path: Path, left: str) -> None:
    path, wal = tmp_path / "state.db", tmp_path / "state.db-wal"
    wal.write_bytes(b"newest commits")
    if left == "empty":
        path.touch()
    with pytest.raises(LedgerError, match=r"newest commits are in .*state\.db-wal"):
        SqliteLedger(path)
    assert wal.read_bytes() == b"newest commits"
    assert path.exists() is (left == "empty")


def test_empty_wal_does_not_prevent_a_new_ledger(tmp_path: Path) -> None:
    (tmp_path / "state.db-wal").touch()
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
