"""Limits of the runs of a pipeline: never more are open than the limit; on both engines."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from ductile.clock import Ids
from ductile.core.alerts.conditions import Condition
from ductile.core.alerts.rules import AlertRule
from ductile.core.alerts.state_machine import AlertPolicy
from ductile.core.flow.debounce import Debounce, pipeline_target
from ductile.core.flow.limits import Concurrency, OnFull
from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.engine.scheduling.retries import POLL_SECONDS, RetryPromoter
from ductile.engine.scheduling.waiting_runs import WaitingRuns
from ductile.model import RUN_SUPERSEDED, Event, JobStatus, SubmittedBy, is_ended_on_purpose
from ductile.operations.flow import holds
from ductile.store import nodes, verify
from ductile.store.alerts.levels import Levels, Watched
from ductile.store.alerts.rows import RuleRow
from ductile.store.engines.api import BEGINNING, Ledger, Tx
from ductile.store.engines.pg.tx import PostgresTx
from ductile.store.engines.queries import load_queries
from ductile.store.jobs import close, read, requeue, retries
from ductile.store.jobs.claim import ClaimedJob
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.nodes import NodeRecord
from tests.conftest import CountingEntropy, FakeClock
from tests.new_ledger import create_ledger
from tests.store.conftest import execute
from tests.store.flow.harness import key
from tests.store.jobs.harness import TX_CONFIG, Pipelines
from tests.waiting import WAIT_LIMIT, until

PIPELINES: list[dict[str, object]] = [
    {
        "name": "p",
        "on": "go",
        "steps": [{"id": "one", "uses": "a"}, {"id": "two", "uses": "b"}],
        "on_failure": [{"id": "report", "uses": "d"}],
    },
    {
        "name": "split",
        "on": "split",
        "steps": [
            {"id": "s", "split": [{"id": "x", "uses": "a"}, {"id": "y", "uses": "b"}]},
            {"id": "z", "uses": "c"},
        ],
    },
    {
        "name": "timed",
        "on": "timed",
        "steps": [{"id": "wait", "wait": {"approval": "ok?"}}, {"id": "two", "uses": "b"}],
    },
]
BAD = {"status": "error", "error": "no", "retry": False}


class RunLimits(Pipelines):
    """The runs of `p`, `split` and `timed` have the key `{payload.account}`."""

    def __init__(self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
        super().__init__(ledger, clock, entropy, PIPELINES)
        self.limit(1)

    def limit(self, limit: int, on_full: OnFull = OnFull.QUEUE) -> None:
        own = Concurrency(limit, key(), on_full)
        limits = {str(pipeline["name"]): own for pipeline in PIPELINES}
        self.tx_config = replace(self.tx_config, run_limits=limits)

    def unlimit(self) -> None:
        self.tx_config = replace(self.tx_config, run_limits={})

    def debounce(self) -> None:
        target = pipeline_target("p")
        router = replace(self.tx_config.router, debounces={target: Debounce(target, 10, 25, key())})
        self.tx_config = replace(self.tx_config, router=router)
        self.rules = replace(self.rules, router=router)

    def put(self, account: str = "a", name: str = "p") -> str:
        self.clock.advance(0.001)
        return self.start(name, {"account": account})

    def must_take(self) -> ClaimedJob:
        claimed = self.take()
        assert claimed is not None
        return claimed

    def open_runs(self, account: str = "a", name: str = "p") -> list[str]:
        values = {"pipeline": name, "limit_key": account, "limit": 100}
        return [str(row["id"]) for row in self.rows("running_runs", **values)]

    def why(self, run_id: str) -> str | None:
        found = self.ledger.read(lambda tx: holds.describe_held_runs(tx, [run_id], self.tx_config))
        return found.get(run_id)

    def job_of(self, run_id: str, step: str = "one") -> dict[str, object]:
        [row] = [
            row for row in self.rows("jobs_of_instance", id=run_id, limit=9) if row["step"] == step
        ]
        return row

    def cancel(self, job_id: str) -> None:
        base, now = self.entropy.uuid(), self.clock.now()

        def work(tx: Tx) -> bool:
            job = read.load_job(tx, job_id)
            assert job is not None
            config = self.tx_config
            return close.end_queued(tx, job, JobStatus.DEAD, "cancelled", now, config, Ids(base))

        assert self.ledger.write(work)

    def retry(self, job_id: str) -> None:
        base, now, config = self.entropy.uuid(), self.clock.now(), self.tx_config

        def work(tx: Tx) -> None:
            job = read.load_job(tx, job_id)
            assert job is not None
            assert requeue.retry_job(tx, job, 1, now)
            run = holds.find_held_run(tx, job_id)
            if run is not None:
                close.take_turns(tx, [run.id], config, Ids(base), now, must_wait=True)

        self.ledger.write(work)

    def turns(self) -> WaitingRuns:
        class _Compiled:
            tx_config = self.tx_config

        return WaitingRuns(self.ledger, "boot", lambda: _Compiled(), self.entropy)  # type: ignore[arg-type, return-value]

    def check(self) -> None:
        found = verify.verify(self.ledger)
        assert found.violations == []


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> RunLimits:
    return RunLimits(ledger, clock, entropy)


def test_runs_of_a_key_follow_each_other_in_order(t: RunLimits) -> None:
    first, second, third, other = t.put(), t.put(), t.put(), t.put("b")
    assert (t.open_runs(), t.open_runs("b")) == ([first], [other])
    ones = [t.must_take(), t.must_take()]
    assert t.take() is None
    assert {one.job.scope_id for one in ones} == {first, other}
    assert t.why(first) is None
    reason = t.why(third)
    assert reason is not None
    for text in ("1 of 1 runs with the key 'a'", first, "1 run before it"):
        assert text in reason
    for one in ones:
        t.end(one)
    assert t.open_runs() == [first]
    two = t.must_take()
    assert (two.job.scope_id, two.job.step_path) == (first, "two")
    t.end(two)
    # In the transaction that ended the first.
    assert (t.scope(first), t.open_runs()) == ("ended", [second])
    t.run()
    assert [t.scope(run) for run in (second, third, other)] == ["ended"] * 3


def test_skipped_run_names_the_run_that_holds_the_key(t: RunLimits) -> None:
    t.limit(1, OnFull.SKIP)
    first, second, split = t.put(), t.put(), t.put(name="split")
    skipped = t.put(name="split")
    [row] = t.rows("run", id=second)
    assert row["status"] == "skipped"
    assert first in str(row["reason"])
    job = t.job_of(second)
    assert (job["status"], job["last_error"]) == ("skipped", row["reason"])
    # Its split does not continue with its join, and no handler starts.
    assert sorted(t.run()) == ["one", "s.0.x", "s.1.y", "two", "z"]
    assert [t.scope(run) for run in (first, split, skipped)] == ["ended", "ended", "skipped"]
    assert t.scope(t.put()) == "open"


def test_newest_run_cancels_the_older_ones_as_a_whole(t: RunLimits) -> None:
    t.limit(1, OnFull.CANCEL)
    first = t.put()
    running = t.must_take()
    second, third = t.put(), t.put()
    assert t.scope(second) == "skipped"
    assert t.open_runs() == [first]
    [row] = t.rows("displaced_run", id=first)
    assert row["displaced_by"] == second
    # The step ends before the request reaches it: the next step does not run.
    t.end(running)
    assert t.scope(first) == "failed"
    two = t.job_of(first, "two")
    assert two["status"] == "dead"
    assert is_ended_on_purpose(str(two["last_error"]))
    [run] = t.rows("run", id=first)
    assert str(run["reason"]).startswith(RUN_SUPERSEDED)
    assert t.open_runs() == [third]
    assert sorted(t.run()) == ["one", "report", "two"]
    assert t.scope(third) == "ended"


def test_retry_of_a_cancelled_runs_step_does_not_run(t: RunLimits) -> None:
    t.limit(1, OnFull.CANCEL)
    first = t.put()
    running = t.must_take()
    second = t.put()
    t.end(running, {"status": "error", "error": "again", "retry": True})
    assert (t.scope(first), t.open_runs()) == ("failed", [second])


def test_split_that_begins_a_run_waits_as_a_whole(t: RunLimits) -> None:
    first, second = t.put(name="split"), t.put(name="split")
    assert sorted(t.run()) == ["s.0.x", "s.0.x", "s.1.y", "s.1.y", "z", "z"]
    assert [t.scope(first), t.scope(second)] == ["ended", "ended"]


def test_held_wait_begins_after_its_turn(t: RunLimits) -> None:
    first, second = t.put(name="timed"), t.put(name="timed")
    t.run()
    assert len(t.rows("waiting_approvals", pipeline=None, before=None, before_id="", limit=9)) == 1
    t.cancel(str(t.job_of(first, "wait")["job_id"]))
    assert t.open_runs(name="timed") == [second]
    t.run()
    [wait] = t.rows("waiting_approvals", pipeline=None, before=None, before_id="", limit=9)
    assert wait["job_id"] == t.job_of(second, "wait")["job_id"]
    t.check()


def test_retried_run_waits_for_its_turn_even_if_others_are_skipped(t: RunLimits) -> None:
    t.limit(1, OnFull.SKIP)
    first = t.put()
    t.end(t.must_take(), BAD)
    assert t.scope(first) == "failed"
    second = t.put()
    t.retry(str(t.job_of(first)["job_id"]))
    assert (t.scope(first), t.open_runs()) == ("open", [second])
    assert t.why(first) is not None
    t.run()
    assert [t.scope(first), t.scope(second)] == ["ended", "ended"]


def test_changed_limit_lets_runs_begin(t: RunLimits) -> None:
    runs = [t.put() for _ in range(5)]
    t.limit(2)
    t.turns().tick(t.clock.now())
    assert t.open_runs() == runs[:2]
    t.unlimit()
    t.turns().tick(t.clock.now())
    assert t.open_runs() == runs


def test_run_that_waits_for_long_is_reported_by_queue_age(t: RunLimits) -> None:
    rule = AlertRule("late", frozenset({Condition.QUEUE_AGE}), "page", AlertPolicy())
    row = RuleRow("late", BEGINNING, t.clock.now(), t.clock.now())

    def late() -> list[tuple[str, str]]:
        now = t.clock.now()
        found = t.ledger.read(lambda tx: Levels(tx, Watched(), now).read(rule, row))
        return [(cause.subject, cause.first_error) for cause in found]

    t.put("b")
    t.put("a")
    for claimed in (t.must_take(), t.must_take()):
        assert claimed.job.step_path == "one"
    t.clock.advance(60)
    second = t.put("a")
    t.clock.advance(600)
    assert late() == []
    t.clock.advance(1)
    reason = f"run {second} waits for its turn with the key 'a' (concurrency)"
    assert late() == [("pipeline:p", reason)]
    t.unlimit()
    t.turns().tick(t.clock.now())
    t.must_take()
    assert late() == []


def test_debounced_run_takes_its_turn_when_it_is_due(t: RunLimits) -> None:
    t.debounce()
    runs = [_arrive(t), _arrive(t)]
    assert t.scope(runs[0]) == "skipped"
    by_name = t.put()
    # It holds no place while it is debounced.
    assert t.open_runs() == [by_name]
    t.clock.advance(11)
    t.turns().take_due(t.clock.now())
    assert t.ledger.write(lambda tx: retries.promote_due(tx, t.clock.now())) == 0
    assert t.open_runs() == [by_name]
    assert t.why(runs[1]) is not None
    newest = _arrive(t)
    assert t.scope(runs[1]) == "skipped"
    t.run()
    t.clock.advance(30)
    t.turns().take_due(t.clock.now())
    assert t.open_runs() == [newest]
    t.run()
    assert t.scope(newest) == "ended"


def test_two_nodes_let_a_due_run_take_its_turn_once(
    open_ledger: Callable[[], Ledger],
    clock: FakeClock,
    entropy: CountingEntropy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    t = RunLimits(open_ledger(), clock, entropy)
    t.limit(1, OnFull.SKIP)
    t.debounce()
    run = _arrive(t)
    t.clock.advance(11)
    if t.ledger.engine == "postgres":
        other = RunLimits(open_ledger(), clock, entropy)
        other.tx_config = t.tx_config
        first, hold = [other.turns()], PostgresTx.hold

        def hold_late(tx: PostgresTx, *key: str, wait: bool) -> bool:
            # The other node is faster: it commits before this one has the lock of the key.
            while first:
                first.pop().take_due(clock.now())
            return hold(tx, *key, wait=wait)

        monkeypatch.setattr(PostgresTx, "hold", hold_late)
    t.turns().take_due(t.clock.now())
    assert t.open_runs() == [run]
    t.run()
    assert t.scope(run) == "ended"


def test_debounced_run_is_left_to_the_nodes_that_know_its_pipeline(t: RunLimits) -> None:
    t.debounce()
    node = NodeRecord("n", "other", "1", "h", {}, {"a"}, ["p"], 1)
    t.ledger.write(lambda tx: nodes.register(tx, node, is_only_node=False))
    running, debounced = t.put(), _arrive(t)
    t.clock.advance(11)
    own, t.tx_config = t.tx_config, replace(TX_CONFIG, run_limits={})
    retry = RetryPromoter(t.ledger, WorkSignal(1), t.turns())
    # It would not know the limit. Nor does it look again and again until another node comes.
    assert retry.tick(t.clock.now()) == POLL_SECONDS
    assert t.open_runs() == [running]
    t.tx_config = own
    t.turns().take_due(t.clock.now())
    assert t.open_runs() == [running]
    t.run()
    assert t.scope(debounced) == "ended"


def test_jobs_of_a_run_are_found_without_reading_those_of_other_runs(tmp_path: Path) -> None:
    create_ledger(tmp_path / "state.db")
    connection = apsw.Connection(str(tmp_path / "state.db"))
    values = {"id": "", "ids": "[]", "paused": "[]", "now": "", "horizon": "", "limit": 1}
    for name in ("release_jobs_of_run", "park_jobs_of_run", "due_debounced_runs"):
        sql = f"EXPLAIN QUERY PLAN {load_queries('sqlite')[name]}"
        plan = [str(row[3]) for row in connection.execute(sql, values)]
        assert "SEARCH j USING INDEX job_queue_scope (scope_id=? AND status=?)" in plan, name
    connection.close()


def _arrive(t: RunLimits) -> str:
    now, base = t.clock.now(), t.entropy.uuid()
    event = Event("go", {"account": "a"}, None, "api", now, t.entropy.uuid())
    routing = t.tx_config.router.arrive(event, plugin=None, submitted_by=SubmittedBy.API)
    spawned = t.ledger.write(
        lambda tx: close.write_intents(
            tx, routing.intents, SpawnPoint(), t.tx_config, Ids(base), now
        )
    )
    return spawned.scope_ids[0]


class RandomRuns:
    """Random operations on the runs of a few keys, and what must hold after each."""

    def __init__(self, t: RunLimits, seed: int) -> None:
        self.t, self.random, self.most = t, random.Random(seed), 1
        self.runs: list[str] = []
        self.running: dict[str, ClaimedJob] = {}
        self.began: dict[tuple[str, str], list[str]] = {}

    def step(self) -> None:
        chosen = [self.put, self.put, self.claim, self.claim, self.end, self.end, self.end]
        self.random.choice([*chosen, self.fail, self.cancel, self.retry, self.change])()
        self.check()

    def put(self) -> None:
        account, name = self.random.choice("ab"), self.random.choice(["p", "p", "split"])
        self.runs.append(self.t.put(account, name))

    def claim(self) -> None:
        claimed = self.t.take()
        if claimed is not None:
            self.running[claimed.job.id] = claimed

    def end(self, body: dict[str, object] | None = None) -> None:
        if self.running:
            self.t.end(self.running.pop(self.random.choice(list(self.running))), body)

    def fail(self) -> None:
        self.end(BAD)

    def cancel(self) -> None:
        jobs = [job for run in self.runs for job in self.jobs(run) if job["status"] == "queued"]
        if jobs:
            self.t.cancel(str(self.random.choice(jobs)["job_id"]))

    def retry(self) -> None:
        bad = ("failed", "dead")
        jobs = [job for run in self.runs for job in self.jobs(run) if job["status"] in bad]
        if jobs:
            self.t.retry(str(self.random.choice(jobs)["job_id"]))

    def change(self) -> None:
        self.most = self.random.randint(1, 3)
        self.t.limit(self.most, self.random.choice(list(OnFull)))
        self.t.turns().tick(self.t.clock.now())

    def jobs(self, run: str) -> list[dict[str, object]]:
        return self.t.rows("jobs_of_instance", id=run, limit=20)

    def check(self) -> None:
        """Runs begin only below the limit, in their order, and none waits without a reason."""
        for name in ("p", "split"):
            for account in "ab":
                began = self.t.open_runs(account, name)
                before = self.began.get((name, account), [])
                assert len(began) <= self.most or set(began) <= set(before)
                assert len(began) >= self.most or not self.held(name, account)
                self.began[name, account] = began
        began_runs = {run for runs in self.began.values() for run in runs}
        for claimed in self.running.values():
            if claimed.job.pipeline in ("p", "split"):
                assert self.run_of(claimed) in began_runs

    def run_of(self, claimed: ClaimedJob) -> object:
        return self.t.rows("instance_of_scope", id=claimed.job.scope_id)[0]["id"]

    def held(self, name: str, account: str) -> bool:
        return bool(self.t.rows("first_held_runs", pipeline=name, limit_key=account, limit=1))


@pytest.mark.parametrize("seed", range(4))
def test_limit_holds_and_no_run_waits_without_a_reason(t: RunLimits, seed: int) -> None:
    life = RandomRuns(t, seed)
    for _ in range(80):
        life.step()
    t.limit(1)
    while life.running or life.claim() or life.running:
        life.end()
    assert [run for run in life.runs if t.scope(run) == "open"] == []
    t.check()


def test_three_nodes_share_the_limit(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    first = open_ledger()
    t = RunLimits(first, clock, entropy)
    t.limit(2)
    ledgers = [first]
    if first.engine == "postgres":
        ledgers += [open_ledger(), open_ledger()]

    def start(ledger: Ledger, base: str, event_id: str) -> str:
        now, config = clock.now(), t.tx_config
        event = Event("go", {"account": "a"}, None, "api", now, event_id)
        intent = config.router.start("p", event, submitted_by=SubmittedBy.API)
        assert intent is not None
        spawned = ledger.write(
            lambda tx: close.write_intents(tx, (intent,), SpawnPoint(), config, Ids(base), now)
        )
        return spawned.scope_ids[0]

    def end(ledger: Ledger, run_id: str, base: str) -> None:
        now, config = clock.now(), t.tx_config

        def work(tx: Tx) -> bool:
            [job_id] = [
                row[0]
                for row in tx.all("jobs_of_run_in_status", id=run_id, ids='["queued"]', limit=9)
            ]
            job = read.load_job(tx, job_id)
            assert job is not None
            return close.end_queued(tx, job, JobStatus.DEAD, "done", now, config, Ids(base))

        assert ledger.write(work)

    runs: list[str] = []
    with ThreadPoolExecutor(6) as pool:
        for _ in range(6):
            calls = [pool.submit(start, one, entropy.uuid(), entropy.uuid()) for one in ledgers * 2]
            begun = t.open_runs()
            ends = [
                pool.submit(end, one, run, entropy.uuid())
                for one, run in zip(ledgers, begun, strict=False)
            ]
            runs += [call.result() for call in calls]
            for call in ends:
                call.result()
            left = [run for run in runs if t.scope(run) == "open"]
            assert len(t.open_runs()) == min(2, len(left))
    while begun := t.open_runs():
        assert len(begun) <= 2
        end(first, begun[0], entropy.uuid())
    assert {t.scope(run) for run in runs} == {"failed"}


BLOCKED = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def test_node_decides_after_the_commit_of_another_one(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    first = open_ledger()
    t = RunLimits(first, clock, entropy)
    is_shared = first.engine == "postgres"
    second = open_ledger() if is_shared else first
    has_decided, may_commit = threading.Event(), threading.Event()

    def start(ledger: Ledger, *, wait: bool) -> None:
        now, config, base = clock.now(), t.tx_config, entropy.uuid()
        event = Event("go", {"account": "a"}, None, "api", now, entropy.uuid())
        intent = config.router.start("p", event, submitted_by=SubmittedBy.API)
        assert intent is not None

        def work(tx: Tx) -> None:
            close.write_intents(tx, (intent,), SpawnPoint(), config, Ids(base), now)
            has_decided.set()
            assert not wait or may_commit.wait(WAIT_LIMIT)

        ledger.write(work)

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(start, first, wait=True)]
        assert has_decided.wait(WAIT_LIMIT)
        calls.append(pool.submit(start, second, wait=False))
        if is_shared:
            until(lambda: calls[1].done() or execute(first, BLOCKED))
        may_commit.set()
        for call in calls:
            call.result()
    assert len(t.open_runs()) == 1
