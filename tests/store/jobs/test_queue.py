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
from ductile.store.jobs import claim as claims
from ductile.store.jobs import close, enqueue, plugin_state, read, requeue, retries
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

BASE = "01930000-0000-7000-8000-000000000000"
OK = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": "done"}')
BAD = Outcome(Ending.EXITED, exit_code=1, stdout=b'{"status": "error", "error": "no"}')
RULES = Rules(RetryPolicy(), Redactor())
POLICY = ClaimPolicy(owner="boot-1")
CHART = TxConfig(dedupe_ttl=86_400.0)


class Queue:
    """The rooms, called by hand."""

    def __init__(self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
        self.ledger, self.clock, self.entropy = ledger, clock, entropy

    def put(
        self,
        plugin: str = "echo",
        command: str = "poll",
        *,
        attempts: int = 4,
        **more: object,
    ) -> enqueue.Enqueued:
        new = NewJob(plugin, command, SubmittedBy.CLI, **more)  # type: ignore[arg-type]
        id = self.entropy.uuid()
        now = self.clock.now()
        tx_config = replace(CHART, attempts={plugin: attempts})
        return self.ledger.write(lambda tx: enqueue.enqueue_job(tx, new, tx_config, id=id, now=now))

    def take(self, policy: ClaimPolicy = POLICY) -> ClaimedJob | None:
        now = self.clock.now()
        claimed = self.ledger.write(lambda tx: claims.claim(tx, policy, now))
        return claimed[0] if claimed else None

    def take_all(self, seats: int, ahead: int = 0, policy: ClaimPolicy = POLICY) -> list[str]:
        now = self.clock.now()
        claimed = self.ledger.write(lambda tx: claims.claim(tx, policy, now, seats, ahead))
        return [one.job.id for one in claimed]

    def must_take(self, policy: ClaimPolicy = POLICY) -> ClaimedJob:
        claimed = self.take(policy)
        assert claimed is not None
        return claimed

    def end(self, claimed: ClaimedJob, outcome: Outcome = OK, rules: Rules = RULES) -> bool:
        verdict = judge(claimed.job, outcome, rules, self.clock.now(), 0.5)
        return self.ledger.write(lambda tx: settle(tx, verdict, CHART, BASE)) is not None

    def job(self, job_id: str) -> dict[str, object]:
        found = self.ledger.read(lambda tx: read.describe_job(tx, job_id))
        assert found is not None
        return found

    def state(self, plugin: str) -> object:
        return self.ledger.read(lambda tx: plugin_state.load_state(tx, plugin))


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Queue:
    return Queue(ledger, clock, entropy)


def test_jobs_are_claimed_in_the_order_of_insertion_whatever_their_timestamps(q: Queue) -> None:
    first = q.put()
    q.clock.advance(-3600)
    second = q.put("other")
    assert q.must_take().job.id == first.job_id
    assert q.must_take().job.id == second.job_id
    assert q.take() is None


def test_a_claimed_job_carries_its_plugins_state(q: Queue) -> None:
    q.put()
    updates = b'{"status": "ok", "result": "", "state_updates": {"cursor": 7}}'
    q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=updates))
    q.put()
    assert orjson.loads(q.must_take().state) == {"cursor": 7}


def test_a_settled_job_has_its_state_its_log_row_and_its_transitions(q: Queue) -> None:
    id = q.put().job_id
    q.end(q.must_take())
    job = q.job(id)
    assert job["status"] == "succeeded"
    assert job["result"] == {"status": "ok", "result": "done"}
    assert [a["id"] for a in job["attempts"]] == [f"{id}-1"]  # type: ignore[attr-defined]
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]  # type: ignore[attr-defined]
    assert edges == [("queued", "running"), ("running", "succeeded")]


def test_a_failed_attempt_goes_back_to_the_queue_and_waits_its_backoff(q: Queue) -> None:
    id = q.put().job_id
    q.end(q.must_take(), BAD)
    job = q.job(id)
    assert (job["status"], job["attempt"], job["last_error"]) == ("queued", 2, "no")
    assert job["next_retry_at"] == "2026-02-08T10:00:45.000000Z"
    assert q.take() is None
    edges = [(t["from_status"], t["to_status"]) for t in job["transitions"]]  # type: ignore[attr-defined]
    assert edges[1:] == [("running", "failed"), ("failed", "queued")]


def test_a_waiting_job_is_ready_once_it_is_due(q: Queue) -> None:
    q.put()
    q.end(q.must_take(), BAD)
    due = q.ledger.read(lambda tx: retries.next_retry_at(tx, q.clock.now()))
    assert due == q.clock.now() + timedelta(seconds=45)
    q.clock.advance(44)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 0
    q.clock.advance(1)
    assert q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now())) == 1
    assert q.must_take().job.attempt == 2


def test_a_job_whose_attempts_are_used_up_is_dead(q: Queue) -> None:
    id = q.put(attempts=2).job_id
    for _ in range(2):
        q.end(q.must_take(), BAD)
        q.clock.advance(3600)
        q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    job = q.job(id)
    assert job["status"] == "dead"
    assert [a["status"] for a in job["attempts"]] == ["failed", "dead"]  # type: ignore[attr-defined]


def test_a_settlement_of_an_attempt_that_somebody_else_ended_is_dropped(q: Queue) -> None:
    id = q.put().job_id
    claimed = q.must_take()
    assert q.end(claimed)
    assert not q.end(claimed, BAD)
    assert q.job(id)["status"] == "succeeded"


def test_a_stop_gives_the_job_back_without_using_up_an_attempt(q: Queue) -> None:
    id = q.put().job_id
    claimed = q.must_take()
    verdict = judge(
        claimed.job, Outcome(Ending.CANCELLED), RULES, q.clock.now(), 0.5, Cancellation.STOP
    )
    q.ledger.write(lambda tx: settle(tx, verdict, CHART, BASE))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 5)
    assert q.must_take().job.id == id


def test_a_plugin_at_its_cap_is_passed_over(q: Queue) -> None:
    policy = ClaimPolicy(owner="boot-1", caps={"echo": 1})
    q.put()
    q.put()
    other = q.put("other")
    running = q.must_take(policy)
    assert q.must_take(policy).job.id == other.job_id
    assert q.take(policy) is None
    q.end(running)
    assert q.must_take(policy).job.plugin == "echo"


def test_only_the_init_of_a_plugin_that_awaits_it_is_claimed(q: Queue) -> None:
    policy = ClaimPolicy(owner="boot-1", init_only=frozenset({"echo"}))
    q.put()
    init = q.put(command="init")
    assert q.must_take(policy).job.id == init.job_id
    assert q.take(policy) is None


def test_jobs_of_a_held_plugin_wait(q: Queue) -> None:
    q.put()
    assert q.take(ClaimPolicy(owner="boot-1", held=frozenset({"echo"}))) is None


def test_a_success_inside_the_window_makes_the_same_key_needless(q: Queue) -> None:
    first = q.put(dedupe_key="k")
    q.end(q.must_take())
    again = q.put(dedupe_key="k")
    assert again == enqueue.Enqueued(first.job_id, JobStatus.SUCCEEDED, deduplicated=True)
    q.clock.advance(86_401)
    assert not q.put(dedupe_key="k").deduplicated


def succeeded_by_script(q: Queue, id: str, completed_at: str) -> str:
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at, dedupe_key,"
        f" completed_at) VALUES ('{id}', 'echo', 'poll', 'succeeded', 'cli', '2026-02-08', 'k',"
        f" '{completed_at}')",
    )
    return id


@pytest.mark.parametrize(
    ("completed_at", "guards"),
    [
        ("2026-02-07 10:00:00", True),
        ("2026-02-07 09:59:59", False),
        ("2026-02-07T10:00:00Z", True),
        ("2026-02-07T18:00:00+08:00", True),
        ("2026-02-07T17:59:59+08:00", False),
        ("2026-02-07T02:00:00-08:00", True),
        ("0garbage", False),
        ("zgarbage", False),
    ],
)
def test_a_success_counts_by_its_time_in_whatever_form_that_stands(
    q: Queue, completed_at: str, guards: bool
) -> None:
    """The key is good for a day, and it is the 8th, ten o'clock."""
    succeeded_by_script(q, "script", completed_at)
    assert q.put(dedupe_key="k").deduplicated is guards


def test_of_several_successes_the_latest_is_named(q: Queue) -> None:
    first = q.put(dedupe_key="k", dedupe_ttl=0).job_id
    q.end(q.must_take())
    assert q.put(dedupe_key="k").job_id == first
    later = succeeded_by_script(q, "script", "2026-02-08 10:00:01")
    q.clock.advance(2)
    assert q.put(dedupe_key="k").job_id == later


def test_without_a_ttl_of_its_own_a_key_does_not_guard_against_what_is_queued(q: Queue) -> None:
    q.put(dedupe_key="k")
    assert not q.put(dedupe_key="k").deduplicated


def test_with_a_ttl_of_its_own_a_key_guards_against_what_is_queued(q: Queue) -> None:
    first = q.put(dedupe_key="k", dedupe_ttl=60.0)
    second = q.put(dedupe_key="k", dedupe_ttl=60.0)
    assert (second.job_id, second.deduplicated) == (first.job_id, True)


def test_one_key_for_two_targets_is_two_jobs(q: Queue) -> None:
    q.put(dedupe_key="k", dedupe_ttl=60.0)
    assert not q.put("other", dedupe_key="k", dedupe_ttl=60.0).deduplicated
    assert not q.put(command="handle", dedupe_key="k", dedupe_ttl=60.0).deduplicated


def test_a_job_is_passed_over_while_its_key_runs(q: Queue) -> None:
    q.put(dedupe_key="k")
    q.put(dedupe_key="k")
    behind = q.put()
    running = q.must_take()
    assert q.must_take().job.id == behind.job_id
    assert q.take() is None
    q.end(running)
    assert q.must_take().job.dedupe_key == "k"


def test_state_updates_are_merged_at_the_top_level(q: Queue) -> None:
    for updates in (b'{"a": {"x": 1}, "b": 1}', b'{"a": {"y": 2}}'):
        q.put()
        body = b'{"status": "ok", "result": "", "state_updates": ' + updates + b"}"
        q.end(q.must_take(), Outcome(Ending.EXITED, exit_code=0, stdout=body))
    assert q.state("echo") == {"a": {"y": 2}, "b": 1}


def test_a_state_beyond_its_limit_fails_the_job_and_leaves_the_state_as_it_was(q: Queue) -> None:
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


def test_facts_are_appended_with_a_rising_seq_and_mirrored_into_the_state(q: Queue) -> None:
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


def test_a_cancelled_waiting_job_is_dead_with_a_log_row_of_attempt_0(q: Queue) -> None:
    id = q.put().job_id
    [job] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", q.clock.now(), 10))
    q.ledger.write(
        lambda tx: close.end_queued(
            tx, job, JobStatus.DEAD, "cancelled", q.clock.now(), CHART, Ids(BASE)
        )
    )
    found = q.job(id)
    assert (found["status"], found["last_error"]) == ("dead", "cancelled")
    assert [(a["attempt"], a["status"]) for a in found["attempts"]] == [(0, "dead")]  # type: ignore[attr-defined]


def test_a_job_cancelled_between_attempts_ends_its_last_attempts_row(q: Queue) -> None:
    id = q.put().job_id
    q.end(q.must_take(), BAD)
    [job] = q.ledger.read(lambda tx: requeue.list_queued(tx, "echo", q.clock.now(), 10))
    q.ledger.write(
        lambda tx: close.end_queued(
            tx, job, JobStatus.DEAD, "cancelled", q.clock.now(), CHART, Ids(BASE)
        )
    )
    attempts = q.job(id)["attempts"]
    assert [(a["attempt"], a["status"]) for a in attempts] == [(1, "dead")]  # type: ignore[attr-defined]


def test_an_operators_retry_keeps_the_id_and_gives_the_attempts_again(q: Queue) -> None:
    id = q.put(attempts=1).job_id
    claimed = q.must_take()
    q.end(claimed, BAD)
    dead = replace(claimed.job, status=JobStatus.DEAD)
    assert q.ledger.write(lambda tx: requeue.retry_job(tx, dead, 4, q.clock.now()))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 2, 5)


def test_a_claim_that_was_never_started_goes_back_uncounted(q: Queue) -> None:
    id = q.put().job_id
    q.must_take()
    execute(q.ledger, "UPDATE job_queue SET started_at = NULL")
    [orphan] = q.ledger.read(lambda tx: requeue.list_orphans(tx, "boot-1", 10))
    assert q.ledger.write(lambda tx: requeue.undo_claim(tx, orphan, q.clock.now()))
    job = q.job(id)
    assert (job["status"], job["attempt"], job["max_attempts"]) == ("queued", 1, 4)


def test_many_claimers_never_pass_a_cap_and_never_share_a_job(q: Queue) -> None:
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


def test_listeners_hear_of_what_a_commit_made_ready(q: Queue) -> None:
    heard: list[Effects] = []
    q.ledger.listen(heard.append)
    q.put()
    assert [effects.ready for effects in heard] == [1]
    assert [notice.type for notice in heard[0].notices] == ["job.queued"]


def test_a_listener_that_fails_does_not_undo_what_is_durable(q: Queue) -> None:
    def fails(effects: Effects) -> None:
        raise RuntimeError("a bug")

    heard: list[Effects] = []
    q.ledger.listen(fails)
    q.ledger.listen(heard.append)
    assert q.job(q.put().job_id)["status"] == "queued"
    assert len(heard) == 1


@pytest.mark.parametrize("kind", ["relays", "deliveries"])
def test_what_is_for_others_is_told_even_where_it_comes_alone(q: Queue, kind: str) -> None:
    heard: list[Effects] = []
    q.ledger.listen(heard.append)
    q.ledger.write(lambda tx: setattr(tx.effects, kind, 1))
    assert [getattr(effects, kind) for effects in heard] == [1]


def test_a_closed_ledger_refuses_what_is_handed_over(q: Queue) -> None:
    q.ledger.close()
    with pytest.raises(LedgerError, match="closed"):
        q.ledger.submit(lambda tx: None, lambda result, error: None)


def test_a_transaction_that_fails_changes_nothing_and_tells_nobody(q: Queue) -> None:
    heard: list[Effects] = []
    q.ledger.listen(heard.append)

    def work(tx: object) -> None:
        new = NewJob("echo", "poll", SubmittedBy.CLI)
        enqueue.enqueue_job(tx, new, CHART, id="x", now=q.clock.now())  # type: ignore[arg-type]
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        q.ledger.write(work)
    assert heard == []
    assert q.ledger.read(lambda tx: read.describe_job(tx, "x")) is None


def test_of_what_is_carried_each_is_a_transaction_of_its_own(q: Queue) -> None:
    told: queue.SimpleQueue[tuple[str, BaseException | None]] = queue.SimpleQueue()

    def adding(id: str, fails: bool) -> Callable[[Tx], None]:
        new = NewJob("echo", "poll", SubmittedBy.CLI)

        def work(tx: Tx) -> None:
            enqueue.enqueue_job(tx, new, CHART, id=id, now=q.clock.now())
            if fails:
                raise RuntimeError("no")

        return work

    def answer(id: str) -> Callable[[object, BaseException | None], None]:
        return lambda _result, error: told.put((id, error))

    ids = {"a": False, "bad": True, "c": False}
    q.ledger.write_batch([(adding(id, fails), answer(id)) for id, fails in ids.items()])
    errors = dict(told.get(timeout=WAIT_LIMIT) for _ in ids)
    assert {id: error is not None for id, error in errors.items()} == ids
    found = {id: q.ledger.read(lambda tx, id=id: read.describe_job(tx, id)) is None for id in ids}
    assert found == ids


def test_a_row_with_only_the_specified_columns_is_a_job(q: Queue) -> None:
    execute(
        q.ledger,
        "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
        " submitted_by, created_at) VALUES"
        " ('script-1', 'echo', 'poll', '{}', 'queued', 1, 4, 'cli', '2026-02-08 10:00:00')",
    )
    assert q.must_take().job.id == "script-1"


@pytest.mark.parametrize(("outcome", "recorded"), [(OK, True), (BAD, False)])
def test_an_init_is_recorded_only_where_it_succeeded(
    q: Queue, outcome: Outcome, recorded: bool
) -> None:
    q.put(command="init")
    q.end(q.must_take(), outcome, replace(RULES, init_key="pair-1"))
    found = q.ledger.read(lambda tx: tx.one("init_done", plugin="echo", init_key="pair-1"))
    assert (found is not None) == recorded
