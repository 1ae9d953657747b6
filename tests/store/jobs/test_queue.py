"""Enqueue, claim and settle, on both engines."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import orjson
import pytest

from ductile.clock import Ids
from ductile.core.jobs.judge import Rules, judge
from ductile.core.jobs.retry import RetryPolicy
from ductile.core.values.redact import Redactor
from ductile.errors import LedgerError
from ductile.model import Cancellation, Ending, JobStatus, NewJob, Outcome, SubmittedBy
from ductile.store.engines.api import Effects, Ledger, Tx
from ductile.store.jobs import close, enqueue, read, requeue, retries
from ductile.store.jobs.claim import ClaimPolicy
from ductile.store.jobs.settle import settle
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import BAD, BASE, OK, RULES, TX_CONFIG, JobQueue
from tests.waiting import WAIT_LIMIT


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> JobQueue:
    return JobQueue(ledger, clock, entropy)


def test_claimed_job_has_its_plugins_state(q: JobQueue) -> None:
    q.put()
    updates = b'{"status": "ok", "result": "", "state_updates": {"cursor": 7}}'
    q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=updates))
    q.put()
    assert orjson.loads(q.must_take().state) == {"cursor": 7}


def test_settled_job_has_its_status_log_row_and_transitions(q: JobQueue) -> None:
    id = q.put().job_id
    q.end(q.must_take())
    job = q.job(id)
    assert job["status"] == "succeeded"
    assert job["result"] == {"status": "ok", "result": "done"}
    assert [a["id"] for a in job["attempts"]] == [f"{id}-1"]  # type: ignore[attr-defined]
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]  # type: ignore[attr-defined]
    assert edges == [("queued", "running"), ("running", "succeeded")]


def test_failed_attempt_is_queued_with_a_backoff(q: JobQueue) -> None:
    id = q.put().job_id
    q.end(q.must_take(), BAD)
    job = q.job(id)
    assert (job["status"], job["attempt"], job["last_error"]) == ("queued", 2, "no")
    assert job["next_retry_at"] == "2026-02-08T10:00:45.000000Z"
    assert q.take() is None
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]  # type: ignore[attr-defined]
    assert edges[1:] == [("running", "failed"), ("failed", "queued")]


def test_waiting_job_is_ready_when_due(q: JobQueue) -> None:
    q.put()
    q.end(q.must_take(), BAD)
    due = q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now()))
    assert due == q.clock.now() + timedelta(seconds=45)
    q.clock.advance(44)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 0
    q.clock.advance(1)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1
    assert q.must_take().job.attempt == 2


def test_job_without_attempts_left_is_dead(q: JobQueue) -> None:
    id = q.put(attempts=2).job_id
    for _ in range(2):
        q.end(q.must_take(), BAD)
        q.clock.advance(3600)
        q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    job = q.job(id)
    assert job["status"] == "dead"
    assert [a["status"] for a in job["attempts"]] == ["failed", "dead"]  # type: ignore[attr-defined]


def test_settlement_of_an_ended_attempt_is_dropped(q: JobQueue) -> None:
    id = q.put().job_id
    claimed = q.must_take()
    assert q.end(claimed)
    assert not q.end(claimed, BAD)
    assert q.job(id)["status"] == "succeeded"


def test_stop_requeues_the_job_without_using_an_attempt(q: JobQueue) -> None:
    id = q.put().job_id
    claimed = q.must_take()
    verdict = judge(
        claimed.job, Outcome(Ending.CANCELLED), RULES, q.clock.now(), 0.5, Cancellation.STOP
    )
    q.ledger.write(lambda tx: settle(tx, verdict, TX_CONFIG, BASE))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 5)
    assert q.must_take().job.id == id


def test_plugin_at_its_cap_is_skipped(q: JobQueue) -> None:
    policy = ClaimPolicy(owner="boot-1", caps={"echo": 1})
    q.put()
    q.put()
    other = q.put("other")
    running = q.must_take(policy)
    assert q.must_take(policy).job.id == other.job_id
    assert q.take(policy) is None
    q.end(running)
    assert q.must_take(policy).job.plugin == "echo"


def test_only_init_of_an_uninitialized_plugin_is_claimed(q: JobQueue) -> None:
    policy = ClaimPolicy(owner="boot-1", init_only=frozenset({"echo"}))
    q.put()
    init = q.put(command="init")
    assert q.must_take(policy).job.id == init.job_id
    assert q.take(policy) is None


def test_jobs_of_a_held_plugin_are_not_claimed(q: JobQueue) -> None:
    q.put()
    assert q.take(ClaimPolicy(owner="boot-1", held=frozenset({"echo"}))) is None


def test_success_within_the_ttl_replaces_a_job_with_its_key(q: JobQueue) -> None:
    first = q.put(dedupe_key="k")
    q.end(q.must_take())
    again = q.put(dedupe_key="k")
    assert again == enqueue.Enqueued(first.job_id, JobStatus.SUCCEEDED, deduplicated=True)
    q.clock.advance(86_401)
    assert not q.put(dedupe_key="k").deduplicated


def succeeded_by_script(q: JobQueue, id: str, completed_at: str, key: str = "k") -> str:
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at, dedupe_key,"
        f" completed_at) VALUES ('{id}', 'echo', 'poll', 'succeeded', 'cli', '2026-02-08', '{key}',"
        f" '{completed_at}')",
    )
    return id


def test_success_time_in_any_format_counts(q: JobQueue) -> None:
    """The ttl is a day, and the time is 10:00 on the 8th."""
    times = {
        "2026-02-07 10:00:00": True,
        "2026-02-07 09:59:59": False,
        "2026-02-07T10:00:00Z": True,
        "2026-02-07T18:00:00+08:00": True,
        "2026-02-07T17:59:59+08:00": False,
        "2026-02-07T02:00:00-08:00": True,
        "0garbage": False,
        "zgarbage": False,
    }
    for completed_at, counts in times.items():
        succeeded_by_script(q, completed_at, completed_at, key=completed_at)
        assert q.put(dedupe_key=completed_at).deduplicated is counts, completed_at


def test_latest_success_is_returned(q: JobQueue) -> None:
    first = q.put(dedupe_key="k", dedupe_ttl=0).job_id
    q.end(q.must_take())
    assert q.put(dedupe_key="k").job_id == first
    later = succeeded_by_script(q, "script", "2026-02-08 10:00:01")
    q.clock.advance(2)
    assert q.put(dedupe_key="k").job_id == later


def test_key_without_own_ttl_ignores_queued_jobs(q: JobQueue) -> None:
    q.put(dedupe_key="k")
    assert not q.put(dedupe_key="k").deduplicated


def test_key_with_own_ttl_considers_queued_jobs(q: JobQueue) -> None:
    first = q.put(dedupe_key="k", dedupe_ttl=60.0)
    second = q.put(dedupe_key="k", dedupe_ttl=60.0)
    assert (second.job_id, second.deduplicated) == (first.job_id, True)


def test_producers_with_the_same_key_decide_one_after_the_other(q: JobQueue) -> None:
    second: list[enqueue.Enqueued] = []
    other = threading.Thread(target=lambda: second.append(q.put(dedupe_key="k", dedupe_ttl=60.0)))
    new = NewJob("echo", "poll", SubmittedBy.CLI, dedupe_key="k", dedupe_ttl=60.0)

    def put_slowly(tx: Tx) -> enqueue.Enqueued:
        first = enqueue.enqueue_job(tx, new, TX_CONFIG, id="first", now=q.clock.now())
        other.start()
        # It has to wait until this one is committed.
        other.join(0.5)
        return first

    assert not q.ledger.write(put_slowly).deduplicated
    other.join(WAIT_LIMIT)
    assert [(one.job_id, one.deduplicated) for one in second] == [("first", True)]


def test_same_key_for_two_targets_is_two_jobs(q: JobQueue) -> None:
    q.put(dedupe_key="k", dedupe_ttl=60.0)
    assert not q.put("other", dedupe_key="k", dedupe_ttl=60.0).deduplicated
    assert not q.put(command="handle", dedupe_key="k", dedupe_ttl=60.0).deduplicated


def test_job_is_skipped_while_its_key_runs(q: JobQueue) -> None:
    q.put(dedupe_key="k")
    q.put(dedupe_key="k")
    following = q.put()
    running = q.must_take()
    assert q.must_take().job.id == following.job_id
    assert q.take() is None
    q.end(running)
    assert q.must_take().job.dedupe_key == "k"


def test_state_updates_are_merged_at_the_top_level(q: JobQueue) -> None:
    for updates in (b'{"a": {"x": 1}, "b": 1}', b'{"a": {"y": 2}}'):
        q.put()
        body = b'{"status": "ok", "result": "", "state_updates": ' + updates + b"}"
        q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=body))
    assert q.state("echo") == {"a": {"y": 2}, "b": 1}


def test_state_over_the_limit_fails_the_job_and_is_not_stored(q: JobQueue) -> None:
    q.put()
    small = b'{"status": "ok", "result": "", "state_updates": {"a": 1}}'
    q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=small))
    id = q.put().job_id
    large = orjson.dumps({"status": "ok", "result": "", "state_updates": {"b": "x" * 1024**2}})
    q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=large))
    assert q.state("echo") == {"a": 1}
    job = q.job(id)
    assert job["status"] == "queued"
    assert "1 MiB" in str(job["last_error"])


def test_facts_are_appended_and_mirrored_into_the_state(q: JobQueue) -> None:
    rules = Rules(RetryPolicy(), Redactor(), fact_type="echo.snapshot", mirror_fact=True)
    for updates in (b'{"a": 1, "gone": 1}', b'{"a": 2}'):
        q.put()
        body = b'{"status": "ok", "result": "", "state_updates": ' + updates + b"}"
        q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=body), rules)
    facts = q.ledger.read(lambda tx: tx.dicts("facts_of", plugin="echo", before=99, limit=10))
    assert [(f["seq"], orjson.loads(f["fact_json"])) for f in facts] == [
        (2, {"a": 2}),
        (1, {"a": 1, "gone": 1}),
    ]
    assert q.state("echo") == {"a": 2}


def test_cancelled_queued_job_has_a_log_row_of_attempt_0(q: JobQueue) -> None:
    id = q.put().job_id
    [job] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", 10))
    q.ledger.write(
        lambda tx: close.end_queued(
            tx, job, JobStatus.DEAD, "cancelled", q.clock.now(), TX_CONFIG, Ids(BASE)
        )
    )
    found = q.job(id)
    assert (found["status"], found["last_error"]) == ("dead", "cancelled")
    assert [(a["attempt"], a["status"]) for a in found["attempts"]] == [(0, "dead")]  # type: ignore[attr-defined]


def test_job_cancelled_between_attempts_updates_its_last_log_row(q: JobQueue) -> None:
    id = q.put().job_id
    q.end(q.must_take(), BAD)
    [job] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", 10))
    q.ledger.write(
        lambda tx: close.end_queued(
            tx, job, JobStatus.DEAD, "cancelled", q.clock.now(), TX_CONFIG, Ids(BASE)
        )
    )
    attempts = q.job(id)["attempts"]
    assert [(a["attempt"], a["status"]) for a in attempts] == [(1, "dead")]  # type: ignore[attr-defined]


def test_operator_retry_keeps_the_id_and_adds_attempts(q: JobQueue) -> None:
    id = q.put(attempts=1).job_id
    claimed = q.must_take()
    q.end(claimed, BAD)
    dead = replace(claimed.job, status=JobStatus.DEAD)
    assert q.ledger.write(lambda tx: requeue.retry_job(tx, dead, 4, q.clock.now()))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 5)


def test_operator_retry_ends_the_backoff_of_a_queued_job(q: JobQueue) -> None:
    id = q.put().job_id
    q.end(q.must_take(), BAD)
    assert q.take() is None
    [job] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", 10))
    assert q.ledger.write(lambda tx: requeue.skip_backoff(tx, job, q.clock.now()))
    assert not q.ledger.write(lambda tx: requeue.skip_backoff(tx, job, q.clock.now()))
    again = q.must_take().job
    assert (again.id, again.attempt, again.max_attempts) == (id, 2, 4)


def test_undone_claim_does_not_count_as_an_attempt(q: JobQueue) -> None:
    id = q.put().job_id
    q.must_take()
    execute(q.ledger, "UPDATE job_queue SET started_at = NULL")
    [orphan] = q.ledger.read(lambda tx: requeue.list_orphans(tx, "boot-1", 10))
    assert q.ledger.write(lambda tx: requeue.undo_claim(tx, orphan, q.clock.now()))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 1, 4)


def test_concurrent_claims_respect_the_cap_and_share_no_job(q: JobQueue) -> None:
    policy = ClaimPolicy(owner="boot-1", caps={"echo": 2})
    for _ in range(60):
        q.put()
    taken: list[str] = []
    most: list[int] = []
    lock = threading.Lock()

    def work() -> None:
        while True:
            claimed = q.take(policy)
            if claimed is None:
                with lock:
                    if len(taken) == 60:
                        return
                continue
            running = q.ledger.read(lambda tx: tx.one("running_count"))
            with lock:
                taken.append(claimed.job.id)
                most.append(running[0] if running else 0)
            q.end(claimed)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_LIMIT)
    assert len(set(taken)) == len(taken) == 60
    assert max(most) <= 2


def test_listeners_get_the_number_of_ready_jobs(q: JobQueue) -> None:
    received: list[Effects] = []
    q.ledger.listen(received.append)
    q.put()
    assert [effects.ready for effects in received] == [1]
    assert [notice.type for notice in received[0].notices] == ["job.queued"]


def test_failing_listener_does_not_affect_the_commit(q: JobQueue) -> None:
    def fails(effects: Effects) -> None:
        raise RuntimeError("a bug")

    received: list[Effects] = []
    q.ledger.listen(fails)
    q.ledger.listen(received.append)
    assert q.job(q.put().job_id)["status"] == "queued"
    assert len(received) == 1


@pytest.mark.parametrize("kind", ["relays", "deliveries"])
def test_outbox_effects_alone_are_reported(q: JobQueue, kind: str) -> None:
    received: list[Effects] = []
    q.ledger.listen(received.append)
    q.ledger.write(lambda tx: setattr(tx.effects, kind, 1))
    assert [getattr(effects, kind) for effects in received] == [1]


def test_closed_ledger_refuses_submit(q: JobQueue) -> None:
    q.ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        q.ledger.submit(lambda tx: None, lambda result, error: None)


def test_failed_transaction_changes_and_reports_nothing(q: JobQueue) -> None:
    received: list[Effects] = []
    q.ledger.listen(received.append)

    def work(tx: object) -> None:
        new = NewJob("echo", "poll", SubmittedBy.CLI)
        enqueue.enqueue_job(tx, new, TX_CONFIG, id="x", now=q.clock.now())  # type: ignore[arg-type]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        q.ledger.write(work)
    assert received == []
    assert q.ledger.read(lambda tx: read.describe_job(tx, "x")) is None


def test_each_work_of_a_batch_is_a_separate_transaction(q: JobQueue) -> None:
    reported: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

    def adding(id: str, fails: bool) -> Callable[[Tx], None]:
        new = NewJob("echo", "poll", SubmittedBy.CLI)

        def work(tx: Tx) -> None:
            enqueue.enqueue_job(tx, new, TX_CONFIG, id=id, now=q.clock.now())
            if fails:
                raise RuntimeError("no")

        return work

    def answer(id: str) -> Callable[[object, BaseException | None], None]:
        return lambda _result, error: reported.put((id, error))

    ids = {"a": False, "bad": True, "c": False}
    q.ledger.write_batch([(adding(id, fails), answer(id)) for id, fails in ids.items()])
    errors = dict(reported.get(timeout=WAIT_LIMIT) for _ in ids)
    assert {id: error is not None for id, error in errors.items()} == ids
    found = {id: q.ledger.read(lambda tx, id=id: read.describe_job(tx, id)) is None for id in ids}
    assert found == ids


def test_row_with_only_the_required_columns_is_a_job(q: JobQueue) -> None:
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
        " submitted_by, created_at) VALUES"
        " ('script-1', 'echo', 'poll', '{}', 'queued', 1, 4, 'cli', '2026-02-08 10:00:00')",
    )
    assert q.must_take().job.id == "script-1"


@pytest.mark.parametrize(("outcome", "recorded"), [(OK, True), (BAD, False)])
def test_only_a_successful_init_is_recorded(q: JobQueue, outcome: Outcome, recorded: bool) -> None:
    q.put(command="init")
    q.end(q.must_take(), outcome, replace(RULES, init_key="pair-1"))
    found = q.ledger.read(lambda tx: tx.one("init_done", plugin="echo", init_key="pair-1"))
    assert (found is not None) == recorded
