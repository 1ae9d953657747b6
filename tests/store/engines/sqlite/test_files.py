"""The files of a ledger: modes, syncs, sizes, opening and closing."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.errors import LedgerError
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.sqlite_connection import WAL_BYTES_KEPT
from tests.store.engines.sqlite.harness import Answers, Disk, FailingFile, Gate, exists, put
from tests.waiting import WAIT_LIMIT


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_are_readable_by_their_owner_only(ledger: SqliteLedger, path: Path) -> None:
    ledger.write(put("p"))
    names = {file.name: mode(file) for file in path.parent.iterdir()}
    assert names == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert mode(path.parent) == 0o700


def test_existing_directory_keeps_its_mode(tmp_path: Path) -> None:
    tmp_path.chmod(0o750)
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    ledger.close()
    assert mode(tmp_path) == 0o750


def test_writer_uses_wal_and_full_synchronous(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    writer = connections[0]
    found = ledger.write(
        lambda tx: {
            name: writer.pragma(name) for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    )
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}


def test_each_write_is_synced_before_it_returns(path: Path, disk: Disk) -> None:
    syncs: list[int] = []
    sync = FailingFile.xSync
    FailingFile.xSync = lambda self, flags: (syncs.append(1), sync(self, flags))[1]  # type: ignore[method-assign,func-returns-value]
    try:
        ledger = SqliteLedger(path)
        ledger.start()
        counts = []
        for n in range(3):
            before = len(syncs)
            ledger.write(put(str(n)))
            counts.append(len(syncs) - before)
        ledger.close()
    finally:
        FailingFile.xSync = sync  # type: ignore[method-assign]
    assert all(count >= 1 for count in counts)


def test_wal_size_is_limited(ledger: SqliteLedger, path: Path) -> None:
    largest = 0
    for n in range(60):
        ledger.write(put(f"p{n}", 500_000))
        largest = max(largest, path.with_name("state.db-wal").stat().st_size)
    assert largest < 2 * WAL_BYTES_KEPT


def test_vacuum_returns_free_space(ledger: SqliteLedger, path: Path) -> None:
    def fill(tx: Any) -> None:
        for n in range(4000):
            tx.run(
                "adopt_snapshot",
                id=f"s{n}",
                config_hash=f"h{n}",
                config="x" * 4000,
                secret_fingerprints="",
                now=f"2020-{n:05}",
            )

    ledger.write(fill)
    pages = path.stat().st_size
    while ledger.write(lambda tx: tx.run("prune_snapshots", before="2021", limit=1000)):
        pass
    rounds = 0
    while ledger.vacuum():
        rounds += 1
        assert rounds < 1000
    ledger.close()
    assert path.stat().st_size < pages / 3


def test_close_commits_queued_writes(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(10):
        answers.submit(str(n), put(f"p{n}"))
    closer = threading.Thread(target=ledger.close)
    closer.start()
    gate.open()
    assert set(answers.all(10).values()) == {None}
    closer.join(WAIT_LIMIT)
    again = SqliteLedger(path)
    again.start()
    assert all(exists(again, f"p{n}") for n in range(10))
    again.close()


def test_write_during_close_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    answered: list[BaseException | None] = []
    monkeypatch.setattr(ledger, "_check", ledger.close)
    ledger.submit(put("p"), lambda result, error: answered.append(error))
    assert [type(error) for error in answered] == [LedgerError]


def test_closed_ledger_refuses_writes(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.close()
    ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        ledger.write(put("p"))


def test_row_of_another_process_is_visible(ledger: SqliteLedger, path: Path) -> None:
    other = apsw.Connection(str(path))
    other.set_busy_timeout(5000)
    other.pragma("wal_autocheckpoint", 0)
    other.execute("INSERT INTO plugin_state (plugin_name, state) VALUES ('theirs', '{}')")
    other.close()
    assert exists(ledger, "theirs")
    ledger.write(put("ours"))
