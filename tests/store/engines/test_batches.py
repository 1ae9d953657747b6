"""Rows that are written together, and transactions that are committed together."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from ductile.clock import to_text
from ductile.errors import LedgerBusy, LedgerError
from ductile.model import JobStatus, NewJob, Notice, SubmittedBy
from ductile.store import notices
from ductile.store.engines import postgres
from ductile.store.engines.api import BEGINNING, Effects, Ledger, Tx, Work
from ductile.store.engines.pg.tx import batch_insert
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.jobs import claim, enqueue, read
from ductile.store.jobs.settle import settle_many
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import BASE, OK, POLICY, RULES, TX_CONFIG, JobQueue, judge
from tests.waiting import WAIT_LIMIT

NOW = FakeClock().now()


def transition(job_id: str, reason: str | None = None) -> dict[str, object]:
    change = {"from_status": "queued", "to_status": "running", "attempt": 1}
    return {"job_id": job_id, "reason": reason, "now": to_text(NOW), **change}


def enqueueing(id: str, plugin: str = "echo", **more: Any) -> Work[enqueue.Enqueued]:
    new = NewJob(plugin, "poll", SubmittedBy.API, **more)
    return lambda tx: enqueue.enqueue_job(tx, new, TX_CONFIG, id=id, now=NOW)


def status(ledger: Ledger, id: str) -> object:
    found = ledger.read(lambda tx: read.describe_job(tx, id))
    return found and found["status"]


def test_appended_rows_are_seen_by_the_next_query(ledger: Ledger) -> None:
    def work(tx: Tx) -> tuple[bool, int]:
        enqueueing("job-1")(tx)
        return claim.has_ready(tx), len(tx.dicts("job", id="job-1"))

    assert ledger.write(work) == (True, 1)


def test_appended_rows_keep_their_order_and_values(ledger: Ledger) -> None:
    texts = ["plain", None, 'a "quote"', "back\\slash", "ünïcødé 🚀", "line\nbreak", "{}", ""]

    def work(tx: Tx) -> None:
        for text in texts:
            tx.append("insert_transition", **transition("job-1", text))

    ledger.write(work)
    rows = ledger.read(lambda tx: tx.dicts("job_transitions", id="job-1"))
    assert [row["reason"] for row in rows] == texts


def test_effects_have_every_notice_with_its_id(ledger: Ledger) -> None:
    announced: list[Effects] = []
    ledger.listen(announced.append)

    def work(tx: Tx) -> None:
        for name in "ab":
            notices.post(tx, Notice("jobs", name, {}), NOW, job_id=f"job-{name}", plugin="echo")
        notices.post_with_id(tx, Notice("jobs", "c", {}), NOW)
        notices.post(tx, Notice("jobs", "d", {}), NOW)

    ledger.write(work)
    stored = ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    found = [(notice.id, notice.type, notice.job_id) for notice in announced[0].notices]
    assert found == [(notice.id, notice.type, notice.job_id) for notice in stored]
    assert [name for _, name, _ in found] == list("abcd")


def test_many_notices_have_their_ids(ledger: Ledger) -> None:
    announced: list[Effects] = []
    ledger.listen(announced.append)
    names = [f"notice-{number}" for number in range(45)]

    def work(tx: Tx) -> None:
        for name in names:
            notices.post(tx, Notice("jobs", name, {}), NOW)

    ledger.write(work)
    stored = ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
    assert [notice.type for notice in stored] == names
    assert [(n.id, n.type) for n in announced[0].notices] == [(n.id, n.type) for n in stored]


def test_rolled_back_rows_are_gone(ledger: Ledger) -> None:
    def work(tx: Tx) -> None:
        enqueueing("job-1")(tx)
        raise RuntimeError("a bug")

    with pytest.raises(RuntimeError):
        ledger.write(work)
    assert status(ledger, "job-1") is None


@pytest.mark.parametrize("query", ["insert_job", "insert_log", "insert_transition"])
def test_appended_queries_have_a_form_for_many_rows(query: str) -> None:
    batch = batch_insert(query)
    assert f"%({query})s" in batch.sql
    assert batch.parameters


def test_update_each_changes_only_rows_that_match(ledger: Ledger, clock: FakeClock) -> None:
    queue = JobQueue(ledger, clock, CountingEntropy())
    ids = [queue.put().job_id for _ in range(3)]
    jobs = [queue.must_take().job for _ in ids]
    settlements = [(judge(job, OK, RULES, clock.now(), 0.5), BASE) for job in jobs]
    execute(ledger, f"UPDATE job_queue SET owner = 'boot-2' WHERE id = '{ids[1]}'")
    settled = ledger.write(lambda tx: settle_many(tx, settlements, TX_CONFIG))
    assert [one is not None for one in settled] == [True, False, True]
    assert [queue.job(id)["status"] for id in ids] == ["succeeded", "running", "succeeded"]
    assert [queue.job(id)["owner"] for id in ids] == [None, "boot-2", None]


# Group commit on PostgreSQL; SQLite's is tested in `sqlite/test_group_commit.py`


class Answers:
    """The results of submitted transactions, by name."""

    def __init__(self, ledger: PostgresLedger) -> None:
        self._ledger, self._changed = ledger, threading.Condition()
        self.found: dict[str, Any] = {}

    def submit(self, name: str, work: Work[Any]) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            with self._changed:
                self.found[name] = error or result
                self._changed.notify_all()

        self._ledger.submit(work, done)

    def wait(self, count: int) -> dict[str, Any]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.found) == count, WAIT_LIMIT)
        return self.found


@pytest.fixture
def postgres_ledger(ledger: Ledger) -> PostgresLedger:
    if not isinstance(ledger, PostgresLedger):
        pytest.skip("about PostgreSQL")
    return ledger


@pytest.fixture
def answers(postgres_ledger: PostgresLedger) -> Answers:
    return Answers(postgres_ledger)


@pytest.fixture
def gather(answers: Answers) -> Callable[[], Callable[[], None]]:
    """Holds the writer, so that submitted transactions gather until the returned call."""

    def hold() -> Callable[[], None]:
        arrived, go_on = threading.Event(), threading.Event()

        def wait(tx: Tx) -> None:
            arrived.set()
            assert go_on.wait(WAIT_LIMIT)

        answers.submit("held", wait)
        assert arrived.wait(WAIT_LIMIT)
        return go_on.set

    return hold


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are sent, without BEGIN and COMMIT."""
    sent: list[str] = []
    send = psycopg.Cursor.execute

    def record(self: psycopg.Cursor, query: Any, *arguments: Any, **more: Any) -> psycopg.Cursor:
        sent.append(query.decode() if isinstance(query, bytes) else str(query))
        return send(self, query, *arguments, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", record)
    return sent


def committed(ledger: PostgresLedger) -> int:
    commits = ledger.health()["commits"]
    assert isinstance(commits, int)
    return commits


def test_gathered_enqueues_are_one_commit(
    postgres_ledger: PostgresLedger,
    answers: Answers,
    gather: Callable[[], Callable[[], None]],
    statements: list[str],
) -> None:
    release = gather()
    for n in range(8):
        answers.submit(f"job-{n}", enqueueing(f"job-{n}"))
    before = committed(postgres_ledger)
    release()
    found = answers.wait(9)
    assert all(found[f"job-{n}"].status is JobStatus.QUEUED for n in range(8))
    # One for the transaction that held the writer.
    assert committed(postgres_ledger) - before <= 2
    assert len(statements) == 1, "one for jobs and notices"
    assert {status(postgres_ledger, f"job-{n}") for n in range(8)} == {"queued"}


def test_bad_row_does_not_fail_the_others_of_its_group(
    postgres_ledger: PostgresLedger, answers: Answers, gather: Callable[[], Callable[[], None]]
) -> None:
    postgres_ledger.write(enqueueing("taken"))
    release = gather()
    answers.submit("good", enqueueing("job-1"))
    # A lone surrogate cannot be encoded; an id that exists violates a constraint.
    answers.submit("unencodable", enqueueing("job-2", plugin="\ud800"))
    answers.submit("taken", enqueueing("taken"))
    answers.submit("also good", enqueueing("job-3"))
    release()
    found = answers.wait(5)
    assert isinstance(found["unencodable"], Exception)
    assert isinstance(found["taken"], psycopg.errors.UniqueViolation)
    assert [status(postgres_ledger, id) for id in ("job-1", "job-3")] == ["queued", "queued"]


def test_enqueues_with_equal_dedupe_keys_are_decided_one_after_the_other(
    postgres_ledger: PostgresLedger, answers: Answers, gather: Callable[[], Callable[[], None]]
) -> None:
    release = gather()
    for n in range(4):
        answers.submit(f"job-{n}", enqueueing(f"job-{n}", dedupe_key="k", dedupe_ttl=60.0))
    answers.submit("plain", enqueueing("plain"))
    release()
    found = answers.wait(6)
    assert [found[f"job-{n}"].deduplicated for n in range(4)].count(False) == 1
    assert status(postgres_ledger, "plain") == "queued"


def test_exception_of_a_submitted_transaction_is_its_own(
    postgres_ledger: PostgresLedger, answers: Answers, gather: Callable[[], Callable[[], None]]
) -> None:
    def fail(tx: Tx) -> None:
        enqueueing("lost")(tx)
        raise LedgerError("no")

    release = gather()
    answers.submit("fails", fail)
    answers.submit("good", enqueueing("job-1"))
    release()
    found = answers.wait(3)
    assert str(found["fails"]) == "no"
    assert (status(postgres_ledger, "job-1"), status(postgres_ledger, "lost")) == ("queued", None)


def test_no_caller_is_answered_if_the_server_ends_before_the_commit(
    postgres_ledger: PostgresLedger,
    answers: Answers,
    gather: Callable[[], Callable[[], None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    commits: list[str] = []

    def end_session(name: str) -> None:
        commits.append(name)
        # The first is the transaction that held the writer.
        if commits.count("commit.before") == 2:
            execute(
                postgres_ledger,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND state = 'idle in transaction'",
            )

    monkeypatch.setattr(postgres, "failpoint", end_session)
    release = gather()
    for n in range(3):
        answers.submit(f"job-{n}", enqueueing(f"job-{n}"))
    release()
    found = answers.wait(4)
    assert all(isinstance(found[f"job-{n}"], LedgerBusy) for n in range(3))
    assert [status(postgres_ledger, f"job-{n}") for n in range(3)] == [None, None, None]


def test_submitted_transactions_are_committed_before_the_ledger_closes(
    postgres_ledger: PostgresLedger, answers: Answers, open_ledger: Callable[[], Ledger]
) -> None:
    for n in range(20):
        answers.submit(f"job-{n}", enqueueing(f"job-{n}"))
    postgres_ledger.close()
    answers.wait(20)
    again = open_ledger()
    assert {status(again, f"job-{n}") for n in range(20)} == {"queued"}


@pytest.mark.parametrize(("caps", "limit"), [({}, 5), ({"echo": 16}, 7)])
def test_statements_of_a_busy_turn(
    postgres_ledger: PostgresLedger,
    clock: FakeClock,
    statements: list[str],
    caps: dict[str, int],
    limit: int,
) -> None:
    """Eight settlements and eight claims; each statement is a round trip."""
    queue, policy = JobQueue(postgres_ledger, clock, CountingEntropy()), replace(POLICY, caps=caps)
    for _ in range(16):
        queue.put()

    def first(tx: Tx) -> list[claim.ClaimedJob]:
        return claim.claim(tx, policy, clock.now(), 8)

    jobs = [claimed.job for claimed in postgres_ledger.write(first)]
    settlements = [(judge(job, OK, RULES, clock.now(), 0.5), BASE) for job in jobs]

    def turn(tx: Tx) -> int:
        settled = settle_many(tx, settlements, TX_CONFIG)
        assert all(settled)
        return len(claim.claim(tx, policy, clock.now(), 8))

    del statements[:]
    assert postgres_ledger.write(turn) == 8
    assert len(statements) <= limit, "\n".join(statements)
