"""Debounce: one job waits per series, and a newer event replaces it; on both engines."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from ductile.clock import Ids, to_text
from ductile.core.flow.debounce import Debounce, pipeline_target, route_target
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.pipelines.routes import Route
from ductile.model import Event, Job, JobStatus, SubmittedBy
from ductile.store.engines.api import Ledger
from ductile.store.jobs import close, read, requeue, retries
from ductile.store.jobs.spawn import SpawnPoint
from tests.conftest import CountingEntropy, FakeClock
from tests.store.conftest import execute
from tests.store.jobs.harness import Pipelines, job_filters

PIPELINE = {
    "name": "p",
    "on": "changed",
    "steps": [{"uses": "a"}, {"uses": "b"}],
    "on_success": [{"uses": "c"}],
}
ROUTE = Route("api", "moved", "d")
ACCOUNT = compile_key("{payload.account}")
assert isinstance(ACCOUNT, FlowKey)


class Debounced(Pipelines):
    """A pipeline for `changed` and a route for `moved`: 10 seconds, at most 25."""

    def __init__(self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
        super().__init__(ledger, clock, entropy, [PIPELINE], (ROUTE,))
        targets = (pipeline_target("p"), route_target("api", "moved", "d"))
        debounces = {target: Debounce(target, 10, 25, ACCOUNT) for target in targets}
        router = replace(self.tx_config.router, debounces=debounces)
        self.tx_config = replace(self.tx_config, router=router)
        self.rules = replace(self.rules, router=router)

    def arrive(self, account: str, kind: str = "changed", ledger: Ledger | None = None) -> str:
        now, base = self.clock.now(), self.entropy.uuid()
        event = Event(kind, {"account": account}, None, "api", now, self.entropy.uuid())
        routing = self.tx_config.router.arrive(event, plugin=None, submitted_by=SubmittedBy.API)
        spawned = (ledger or self.ledger).write(
            lambda tx: close.write_intents(
                tx, routing.intents, SpawnPoint(), self.tx_config, Ids(base), now
            )
        )
        (job_id,) = spawned.job_ids
        return job_id

    def pass_time(self, seconds: float) -> list[str]:
        """The steps and plugins that run after this time."""
        self.clock.advance(seconds)
        self.ledger.write(lambda tx: retries.promote_due(tx, self.clock.now()))
        return self.run()

    def status(self, job_id: str) -> str:
        return str(self.job(job_id)["status"])

    def job(self, job_id: str) -> dict[str, object]:
        found = self.ledger.read(lambda tx: read.describe_job(tx, job_id))
        assert found is not None
        return found

    def due(self, job_id: str) -> object:
        return self.job(job_id)["next_retry_at"]


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Debounced:
    return Debounced(ledger, clock, entropy)


def test_only_the_last_event_of_a_series_starts_a_run(q: Debounced) -> None:
    first = q.arrive("a")
    assert q.pass_time(6) == []
    second = q.arrive("a")
    assert q.status(first) == "skipped"
    assert q.job(first)["last_error"] == f"superseded by job {second} (debounce)"
    assert q.pass_time(9) == []
    assert q.pass_time(1) == ["step_1", "step_2", "step_1"]
    assert q.status(second) == "succeeded"


def test_superseded_run_is_skipped_and_starts_no_handler(q: Debounced) -> None:
    first = q.arrive("a")
    second = q.arrive("a")
    instance = str(q.job(first)["instance_id"])
    [scope] = q.rows("scope", id=instance)
    assert scope["status"] == "skipped"
    assert scope["reason"] == f"superseded by job {second} (debounce)"
    assert q.announced(instance) == ["pipeline.skipped"]
    assert [row["id"] for row in q.rows("jobs", **job_filters())] == [second, first]


def test_keys_do_not_replace_each_other(q: Debounced) -> None:
    first, other = q.arrive("a"), q.arrive("b")
    assert q.pass_time(10).count("step_2") == 2
    assert q.status(first) == q.status(other) == "succeeded"


def test_routes_are_debounced(q: Debounced) -> None:
    first, second = q.arrive("a", "moved"), q.arrive("a", "moved")
    run = q.arrive("a")
    assert q.status(first) == "skipped"
    assert "d" in q.pass_time(10)
    assert q.status(second) == q.status(run) == "succeeded"


def test_series_does_not_wait_longer_than_max_wait(q: Debounced) -> None:
    begin = q.clock.now()
    for _ in range(3):
        last = q.arrive("a")
        q.pass_time(8)
    assert q.due(last) == to_text(begin + timedelta(seconds=25))
    last = q.arrive("a")
    assert q.due(last) == to_text(begin + timedelta(seconds=25))
    assert q.pass_time(1) != []
    assert q.status(last) == "succeeded"
    fresh = q.arrive("a")
    assert q.due(fresh) == to_text(q.clock.now() + timedelta(seconds=10)), "a new series"


def test_due_job_that_has_not_started_is_still_replaced(q: Debounced) -> None:
    first = q.arrive("a")
    q.clock.advance(12)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    second = q.arrive("a")
    assert q.status(first) == "skipped"
    assert q.pass_time(10) != []
    assert q.status(second) == "succeeded"


def test_started_job_is_not_replaced_even_while_it_waits_for_its_retry(q: Debounced) -> None:
    first = q.arrive("a")
    q.clock.advance(10)
    q.ledger.write(lambda tx: retries.promote_due(tx, q.clock.now()))
    claimed = q.take()
    assert claimed is not None
    second = q.arrive("a")
    assert q.status(first) == "running"
    q.end(claimed, {"status": "error", "error": "later"})
    assert q.status(first) == "queued"
    third = q.arrive("a")
    assert [q.status(id) for id in (first, second, third)] == ["queued", "skipped", "queued"]
    q.pass_time(3600)
    assert q.status(first) == q.status(third) == "succeeded"


def test_cancelled_job_ends_its_series(q: Debounced) -> None:
    begin = q.clock.now()
    first = q.arrive("a")
    q.clock.advance(8)
    q.ledger.write(
        lambda tx: close.end_queued(
            tx,
            _loaded(read.load_job(tx, first)),
            JobStatus.DEAD,
            "cancelled",
            q.clock.now(),
            q.tx_config,
            Ids(q.entropy.uuid()),
        )
    )
    second = q.arrive("a")
    assert q.due(second) == to_text(begin + timedelta(seconds=18))
    assert q.status(first) == "dead"
    retried = q.ledger.write(
        lambda tx: requeue.retry_job(tx, _loaded(read.load_job(tx, first)), 1, q.clock.now())
    )
    assert retried, "the unique index does not refuse the retry"
    assert q.status(second) == "queued"


def _loaded(job: Job | None) -> Job:
    assert job is not None
    return job


def test_waiting_job_survives_a_restart(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    before = Debounced(open_ledger(), clock, entropy)
    begin, first = clock.now(), before.arrive("a")
    before.ledger.close()
    after = Debounced(open_ledger(), clock, entropy)
    clock.advance(20)
    second = after.arrive("a")
    assert after.due(second) == to_text(begin + timedelta(seconds=25))
    assert after.status(first) == "skipped"
    assert after.pass_time(5) != []


def test_racing_writers_leave_one_waiting_job(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    q = Debounced(open_ledger(), clock, entropy)
    nodes = [q.ledger, open_ledger()]
    with ThreadPoolExecutor(2) as pool:
        ids = list(pool.map(lambda turn: q.arrive("a", ledger=nodes[turn % 2]), range(40)))
    assert len(set(ids)) == 40
    statuses = [q.status(id) for id in ids]
    assert (statuses.count("skipped"), statuses.count("queued")) == (39, 1)


def test_clock_that_is_set_back_does_not_lengthen_the_series(q: Debounced) -> None:
    q.arrive("a")
    q.clock.advance(-3600)
    second = q.arrive("a")
    assert q.due(second) == to_text(q.clock.now() + timedelta(seconds=10))


def test_database_refuses_two_queued_jobs_of_a_series(q: Debounced) -> None:
    first, second = q.arrive("a"), q.arrive("b")
    change = "UPDATE job_queue SET debounce_series = (SELECT debounce_series FROM job_queue "
    with pytest.raises(Exception, match=r"(?i)unique"):
        execute(q.ledger, f"{change} WHERE id = '{first}') WHERE id = '{second}'")


def test_claims_that_race_with_events_lose_no_event(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    q = Debounced(open_ledger(), clock, entropy)
    other = open_ledger()
    ids: list[str] = []

    def produce() -> None:
        for _ in range(40):
            ids.append(q.arrive("a", "moved", ledger=other))

    # At once instead of after the wait, so that jobs are claimed while they are replaced.
    later = q.clock.now() + timedelta(seconds=10)
    with ThreadPoolExecutor(1) as pool:
        producing = pool.submit(produce)
        while not producing.done():
            q.ledger.write(lambda tx: retries.promote_due(tx, later))
            q.run()
        producing.result()
    assert q.pass_time(10) in ([], ["d"])
    statuses = [q.status(id) for id in ids]
    assert len(statuses) == 40
    assert set(statuses) <= {"skipped", "succeeded"}
    assert statuses[-1] == "succeeded", "the last event has started a job"
    for id in ids:
        if q.status(id) == "skipped":
            newer = str(q.job(id)["last_error"]).split()[3]
            assert newer == ids[ids.index(id) + 1]
