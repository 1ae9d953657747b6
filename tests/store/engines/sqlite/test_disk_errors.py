"""Full and failing disks, and the write lock of another process."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

from ductile.clock import SystemEntropy
from ductile.errors import LedgerBroken, LedgerBusy, LedgerError, LedgerFull
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.job_probe import JobProbe
from ductile.store.jobs import read
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.tx_config import TxConfig
from tests.store.engines.sqlite.harness import Answers, Disk, Gate, damage_table, exists, put


def limit(ledger: SqliteLedger, connections: list[apsw.Connection], spare: int) -> None:
    """Limit the growth of the file to this number of pages."""
    writer = connections[0]

    def work(_tx: Any) -> None:
        writer.pragma("max_page_count", int(str(writer.pragma("page_count"))) + spare)

    ledger.write(work)


def test_full_disk_writes_nothing(ledger: SqliteLedger, connections: list[apsw.Connection]) -> None:
    ledger.write(put("kept"))
    limit(ledger, connections, 0)
    with pytest.raises(LedgerFull):
        ledger.write(put("big", 20_000))
    assert (exists(ledger, "kept"), exists(ledger, "big", 20_000)) == (True, False)


def test_writes_succeed_again_after_a_full_disk(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    limit(ledger, connections, 0)
    with pytest.raises(LedgerFull):
        ledger.write(put("big", 20_000))
    limit(ledger, connections, 100)
    ledger.write(put("big", 20_000))
    assert exists(ledger, "big", 20_000)


def test_transactions_that_fit_are_committed_on_a_full_disk(
    ledger: SqliteLedger, connections: list[apsw.Connection]
) -> None:
    """SQLite abandons the whole transaction, so that the others run again one by one."""
    gate, answers = Gate(ledger), Answers(ledger)
    writer = connections[0]
    runs: list[str] = []

    def first(tx: Any) -> None:
        runs.append("first")
        put("a")(tx)

    answers.submit(
        "limit",
        lambda tx: writer.pragma("max_page_count", int(str(writer.pragma("page_count"))) + 1),
    )
    answers.submit("a", first)
    answers.submit("big", put("big", 50_000))
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(4)
    assert isinstance(errors["big"], LedgerFull)
    assert (errors["a"], errors["c"]) == (None, None)
    assert (exists(ledger, "a"), exists(ledger, "c")) == (True, True)
    assert runs == ["first", "first"]


def test_full_disk_at_the_commit_writes_nothing(
    path: Path, disk: Disk, connections: list[apsw.Connection]
) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.write(put("kept"))
    disk.failing = "full"
    with pytest.raises(LedgerFull):
        ledger.write(put("lost"))
    disk.failing = ""
    ledger.write(put("later"))
    assert [exists(ledger, name) for name in ("kept", "lost", "later")] == [True, False, True]
    ledger.close()


def test_io_error_at_the_commit_stops_the_ledger(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    disk.failing = "sync"
    with pytest.raises(LedgerBroken):
        ledger.write(put("who knows"))
    disk.failing = ""
    with pytest.raises(LedgerBroken):
        ledger.write(put("never"))
    assert ledger.health()["broken"] is True
    ledger.close()


def test_broken_ledger_refuses_write_batch(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    reported: list[BaseException | None] = []
    disk.failing = "sync"
    ledger.write_batch([(put("who knows"), lambda _result, error: reported.append(error))])
    disk.failing = ""
    assert [type(error) for error in reported] == [LedgerBroken]
    with pytest.raises(LedgerBroken):
        ledger.write_batch([(put("never"), lambda _result, _error: None)])
    ledger.close()


def test_failed_rollback_is_reported_and_breaks_the_ledger(
    path: Path, connections: list[apsw.Connection]
) -> None:
    """Otherwise the writer would end, and every caller would wait forever."""
    ledger = SqliteLedger(path)
    ledger.start()

    def refuse_rollback(_cursor: object, sql: str, _values: object) -> bool:
        if sql == "ROLLBACK":
            raise apsw.IOError("no rollback")
        return True

    connections[0].exec_trace = refuse_rollback
    with pytest.raises((ZeroDivisionError, apsw.IOError)):
        ledger.write(lambda tx: tx.run("ensure_state", plugin="a", now="t") / 0)
    with pytest.raises(LedgerBroken, match="cannot be rolled back"):
        ledger.write(put("b"))
    connections[0].exec_trace = None
    ledger.close()


def test_broken_ledger_refuses_queued_transactions(path: Path, disk: Disk) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(5):
        answers.submit(str(n), put(f"p{n}"))
    disk.failing = "sync"
    gate_thread_errors: list[BaseException] = []
    hook, threading.excepthook = (
        threading.excepthook,
        lambda args: gate_thread_errors.append(args.exc_value or RuntimeError()),
    )
    try:
        gate.open()
        errors = answers.all(5)
    finally:
        threading.excepthook = hook
    assert all(isinstance(error, LedgerBroken) for error in errors.values())
    disk.failing = ""
    ledger.close()


def test_write_lock_of_another_process_is_reported_after_the_timeout(
    ledger: SqliteLedger, path: Path, connections: list[apsw.Connection]
) -> None:
    connections[0].set_busy_timeout(20)
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(LedgerBusy):
        ledger.write(put("a"))
    assert ledger.health()["busy"] == 1
    other.execute("ROLLBACK")
    ledger.write(put("a"))
    other.close()


def test_damaged_page_affects_only_the_transactions_that_need_it(path: Path) -> None:
    ledger = SqliteLedger(path)
    ledger.start()
    ledger.close()
    damage_table(path, "job_log")
    ledger = SqliteLedger(path)
    ledger.start()
    answers: dict[str, BaseException | None] = {}
    now = datetime(2026, 1, 1, tzinfo=UTC)
    probe = JobProbe(SystemEntropy().uuid(), ClaimPolicy("boot"), TxConfig(1.0), now)

    ledger.write_batch(
        [
            (put("a"), lambda _result, error: answers.update(a=error)),
            (probe, lambda _result, error: answers.update(log=error)),
            (put("b"), lambda _result, error: answers.update(b=error)),
        ]
    )
    assert (answers["a"], answers["b"]) == (None, None)
    assert "malformed" in str(answers["log"])
    assert not isinstance(answers["log"], LedgerBroken)
    assert (exists(ledger, "a"), exists(ledger, "b")) == (True, True)
    ledger.close()


def test_missing_index_is_named(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "state.db")
    ledger.start()
    script = apsw.Connection(str(tmp_path / "state.db"))
    script.execute("DROP INDEX job_queue_created")
    script.close()
    with pytest.raises(LedgerError, match="index job_queue_created is missing"):
        ledger.read(lambda tx: read.list_jobs(tx, read.JobFilter(), limit=1))
    ledger.close()
