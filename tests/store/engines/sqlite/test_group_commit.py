"""Group commits: batches, callbacks, listeners, and failed transactions of a batch."""

from __future__ import annotations

import queue
import threading
from typing import Any

import apsw
import pytest

from ductile.store.engines import write_queue
from ductile.store.engines.api import Effects
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.engines.write_queue import PendingWrite
from tests.store.engines.sqlite.harness import Answers, Gate, exists, put, write_within_limit
from tests.waiting import WAIT_LIMIT


def test_queued_transactions_are_committed_together(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(100):
        answers.submit(str(n), put(f"p{n}"))
    before = ledger.health()["commits"]
    gate.open()
    assert set(answers.all(100).values()) == {None}
    commits = int(str(ledger.health()["commits"])) - int(str(before))
    assert commits <= 3
    assert all(exists(ledger, f"p{n}") for n in range(100))


def test_many_threads_share_commits(ledger: SqliteLedger) -> None:
    before = int(str(ledger.health()["commits"]))

    def work(thread: int) -> None:
        for n in range(50):
            ledger.write(put(f"{thread}-{n}-"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert all(exists(ledger, f"{t}-{n}-") for t in range(16) for n in range(50))
    assert int(str(ledger.health()["commits"])) - before < 800
    assert ledger.health()["transactions"]


def test_transactions_are_reported_in_order(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    for n in range(50):
        answers.submit(str(n), put(f"p{n}"))
    gate.open()
    answers.all(50)
    assert answers.order == [str(n) for n in range(50)]


def test_transaction_sees_earlier_ones_of_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    seen: list[Any] = []
    answers.submit("writes", put("p"))
    answers.submit("reads", lambda tx: seen.append(tx.one("state_of", plugin="p")))
    gate.open()
    answers.all(2)
    assert seen == [("{}",)]


def test_failed_transaction_does_not_affect_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)

    def fails(tx: Any) -> None:
        put("half")(tx)
        raise ValueError("mine")

    answers.submit("a", put("a"))
    answers.submit("bad", fails)
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(3)
    assert isinstance(errors["bad"], ValueError)
    assert (errors["a"], errors["c"]) == (None, None)
    assert (exists(ledger, "a"), exists(ledger, "half"), exists(ledger, "c")) == (True, False, True)


def test_transactions_run_once_without_a_failure(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    runs: list[int] = []
    for n in range(5):
        answers.submit(str(n), lambda tx, n=n: (runs.append(n), put(f"p{n}")(tx)))
    gate.open()
    answers.all(5)
    assert runs == [0, 1, 2, 3, 4]


def test_write_batch_commits_once_in_the_calling_thread(
    ledger: SqliteLedger,
) -> None:
    reported: list[tuple[int, BaseException | None]] = []

    def done(_result: Any, error: BaseException | None) -> None:
        reported.append((threading.get_ident(), error))

    before = int(str(ledger.health()["commits"]))
    ledger.write_batch([(put("a"), done), (put("b"), done)])
    assert reported == [(threading.get_ident(), None)] * 2
    assert int(str(ledger.health()["commits"])) - before == 1
    assert (exists(ledger, "a"), exists(ledger, "b")) == (True, True)


def test_write_batch_also_commits_queued_transactions(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    answers.submit("waits", put("waits"))
    committer = threading.Thread(
        target=ledger.write_batch, args=([(put("batch"), lambda _result, _error: None)],)
    )
    committer.start()
    gate.open()
    committer.join(WAIT_LIMIT)
    assert answers.all(1) == {"waits": None}
    assert (exists(ledger, "batch"), exists(ledger, "waits")) == (True, True)


def test_violated_constraint_does_not_affect_its_batch(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    bad = {"id": "b", "pid": 1, "version": "v", "now": "t"}
    answers.submit("a", put("a"))
    answers.submit("first", lambda tx: tx.run("insert_boot", **bad))
    answers.submit("again", lambda tx: tx.run("insert_boot", **bad))
    answers.submit("c", put("c"))
    gate.open()
    errors = answers.all(4)
    assert isinstance(errors["again"], apsw.ConstraintError)
    assert [errors[name] for name in ("a", "first", "c")] == [None, None, None]


def test_failed_transaction_has_no_effects(ledger: SqliteLedger) -> None:
    heard: list[Effects] = []
    ledger.listen(heard.append)

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    def fails(tx: Any) -> None:
        tx.effects.ready += 100
        raise ValueError

    ledger.write(work)
    with pytest.raises(ValueError):
        ledger.write(fails)
    assert [effects.ready for effects in heard] == [1]


def test_listeners_are_called_before_the_caller(ledger: SqliteLedger) -> None:
    order: list[str] = []
    ledger.listen(lambda effects: order.append("listener"))
    reported = threading.Event()

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    def done(result: Any, error: BaseException | None) -> None:
        order.append("caller")
        reported.set()

    ledger.submit(work, done)
    assert reported.wait(WAIT_LIMIT)
    assert order == ["listener", "caller"]


def test_failing_callback_does_not_end_the_writer(
    ledger: SqliteLedger,
) -> None:
    """A closed event loop refuses `call_soon_threadsafe`."""

    def done(result: Any, error: BaseException | None) -> None:
        raise RuntimeError("Event loop is closed")

    ledger.submit(put("a"), done)
    write_within_limit(ledger, "b")
    assert exists(ledger, "a")


def test_failing_listener_does_not_end_the_writer(ledger: SqliteLedger) -> None:
    def listener(effects: Effects) -> None:
        raise RuntimeError("a bug")

    def work(tx: Any) -> None:
        tx.effects.ready += 1

    ledger.listen(listener)
    answers = Answers(ledger)
    answers.submit("a", work)
    assert answers.all(1) == {"a": None}
    write_within_limit(ledger, "b")


def test_internal_error_is_reported_and_does_not_end_the_writer(
    ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(batch: object) -> bool:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "_begin", broken)
        answers = Answers(ledger)
        answers.submit("a", put("a"))
        assert isinstance(answers.all(1)["a"], RuntimeError)
    write_within_limit(ledger, "b")


class TestCommitsByOtherThreads:
    """Submitted transactions wait a moment for a thread that commits, if there are many."""

    @pytest.fixture
    def shared_ledger(self, ledger: SqliteLedger, monkeypatch: pytest.MonkeyPatch) -> SqliteLedger:
        """Another thread has just committed two queued transactions."""
        monkeypatch.setattr(write_queue, "COMMITS_STOPPED", 60.0)
        monkeypatch.setattr(write_queue, "CHECK_INTERVAL", 30.0)
        for _ in range(2):
            ledger._queue._waiting.append(PendingWrite(put("before"), lambda *_: None))
        ledger.write_batch([])
        assert ledger._queue._is_emptied_by_others()
        return ledger

    def test_write_batch_takes_queued_transactions_along(self, shared_ledger: SqliteLedger) -> None:
        before, done = int(str(shared_ledger.health()["commits"])), threading.Semaphore(0)

        def reported(_result: object, error: BaseException | None) -> None:
            assert error is None
            done.release()

        shared_ledger.submit(put("first"), reported)
        shared_ledger.submit(put("second"), reported)
        shared_ledger.write_batch([(put("batch"), reported)])
        assert all(done.acquire(timeout=WAIT_LIMIT) for _ in range(3))
        assert int(str(shared_ledger.health()["commits"])) - before == 1

    def test_close_commits_transactions_that_wait_for_others(
        self, shared_ledger: SqliteLedger
    ) -> None:
        reported: list[object] = []
        shared_ledger.submit(put("late"), lambda _result, error: reported.append(error))
        shared_ledger.close()
        assert reported == [None]


def appended(job_id: str) -> dict[str, Any]:
    change = {"from_status": "queued", "to_status": "running", "attempt": 1, "reason": None}
    return {"job_id": job_id, "now": "t", **change}


def transitions(ledger: SqliteLedger, job_id: str) -> int:
    return len(ledger.read(lambda tx: tx.dicts("job_transitions", id=job_id)))


def test_rows_of_a_batch_share_statements(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    statements: list[str] = []
    ledger._connection.set_exec_trace(lambda _, sql, __: statements.append(sql) or True)
    for n in range(17):
        answers.submit(str(n), lambda tx: tx.append("insert_transition", **appended("many")))
    gate.open()
    assert set(answers.all(17).values()) == {None}
    assert transitions(ledger, "many") == 17
    assert len([sql for sql in statements if "job_transitions" in sql]) == 2


def test_transaction_sees_appended_rows_of_earlier_ones_of_its_batch(
    ledger: SqliteLedger,
) -> None:
    gate, answers = Gate(ledger), Answers(ledger)
    seen: list[int] = []
    answers.submit("appends", lambda tx: tx.append("insert_transition", **appended("seen")))
    answers.submit("reads", lambda tx: seen.append(len(tx.dicts("job_transitions", id="seen"))))
    gate.open()
    answers.all(2)
    assert seen == [1]


def test_failed_transaction_loses_only_its_own_appended_rows(ledger: SqliteLedger) -> None:
    gate, answers = Gate(ledger), Answers(ledger)

    def fails(tx: Any) -> None:
        tx.append("insert_transition", **appended("lost"))
        raise ValueError("mine")

    answers.submit("a", lambda tx: tx.append("insert_transition", **appended("kept")))
    answers.submit("bad", fails)
    answers.submit("unwritable", lambda tx: tx.append("insert_transition", **appended(None)))  # type: ignore[arg-type]
    answers.submit("c", lambda tx: tx.append("insert_transition", **appended("kept")))
    gate.open()
    errors = answers.all(4)
    assert isinstance(errors["bad"], ValueError)
    assert isinstance(errors["unwritable"], apsw.ConstraintError)
    assert (errors["a"], errors["c"]) == (None, None)
    assert (transitions(ledger, "kept"), transitions(ledger, "lost")) == (2, 0)


class Joined:
    """Transactions that run together; the result is the number of those that did."""

    def __call__(self, tx: Any) -> int:
        return self.run_together(tx, [self])[0]

    @staticmethod
    def run_together(tx: Any, works: list[Joined]) -> list[int]:
        for _ in works:
            tx.append("insert_transition", **appended("joined"))
        return [len(works)] * len(works)


def test_neighbours_of_a_kind_run_together(ledger: SqliteLedger) -> None:
    gate, results = Gate(ledger), queue.SimpleQueue[int | None]()
    for work in (Joined(), Joined(), put("between"), Joined()):
        ledger.submit(work, lambda result, _: results.put(result))
    gate.open()
    assert [results.get(timeout=WAIT_LIMIT) for _ in range(4)] == [2, 2, 1, 1]
    assert transitions(ledger, "joined") == 3
