"""A priority of ten minutes: as if enqueued ten minutes earlier."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from ductile.clock import Ids
from ductile.core.flow.debounce import route_target
from ductile.core.flow.limits import NO_LIMITS, PluginLimits
from ductile.core.pipelines.routes import Route
from ductile.model import Event, SubmittedBy
from ductile.store.engines.api import Ledger
from ductile.store.jobs import close
from ductile.store.jobs.spawn import SpawnPoint
from tests.conftest import CountingEntropy, FakeClock
from tests.store.flow.harness import LimitedQueue, limited
from tests.store.jobs.harness import Pipelines

Make = Callable[[PluginLimits], LimitedQueue]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    return lambda limits: LimitedQueue(ledger, clock, entropy, limits)


def test_job_is_placed_among_the_jobs_of_ten_minutes_ago(make: Make) -> None:
    q = make(NO_LIMITS)
    old = q.put("a")
    q.clock.advance(900)
    recent = [q.put("a"), q.put("a", plugin="other")]
    q.clock.advance(60)
    urgent = q.put("a", priority=600)
    assert q.take_ids(8, 8) == [old, urgent, *recent]


def test_priorities_are_ordered_among_each_other(make: Make) -> None:
    q = make(NO_LIMITS)
    q.put("a")
    first = q.put("a", priority=600)
    second = q.put("a", priority=600)
    assert q.take_ids(1) + q.take_ids(1) + q.take_ids(1) != []
    q.clock.advance(300)
    waiting = q.put("a")
    q.clock.advance(300)
    low, high = q.put("a", priority=60), q.put("a", priority=400)
    assert q.take_ids(8) == [high, waiting, low]
    assert q.status(first)[0] == q.status(second)[0] == "running"


def test_no_job_is_passed_by_forever(make: Make) -> None:
    q = make(NO_LIMITS)
    plain = q.put("a")
    started: list[str] = []
    for _ in range(30):
        q.clock.advance(60)
        q.put("a", priority=600)
        started += q.take_ids(1)
    assert plain in started
    assert started.index(plain) <= 11


def test_priority_of_a_plugin_moves_its_jobs_before_others(make: Make) -> None:
    q = make(NO_LIMITS)
    other = q.put("a", plugin="other")
    q.clock.advance(1)
    q.priorities = {"sync": 600.0}
    urgent = q.put("a")
    assert q.take_ids(8) == [urgent, other]


def test_limits_hold_for_jobs_with_a_priority(make: Make) -> None:
    q = make(limited())
    first = q.put("a")
    (running,) = q.take(1)
    second, urgent = q.put("a"), q.put("a", priority=600)
    assert q.take_ids(8) == []
    q.end(running)
    assert q.take_ids(8) == [urgent]
    assert running.job.id == first
    assert q.status(second)[0] == "queued"


def test_priority_works_without_any_limit_of_the_plugin(make: Make) -> None:
    q = make(NO_LIMITS)
    plain = [q.put("a", plugin="other") for _ in range(3)]
    urgent = q.put("a", plugin="other", priority=600)
    assert q.take_ids(8, 8) == [urgent, *plain]


def test_priority_of_a_route(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> None:
    queue = Pipelines(ledger, clock, entropy, [], (Route("api", "alarm", "pager"),))
    priorities = {route_target("api", "alarm", "pager"): 600.0}
    router = replace(queue.tx_config.router, priorities=priorities)
    event = Event("alarm", {}, None, "api", clock.now(), entropy.uuid())
    routing = router.arrive(event, plugin=None, submitted_by=SubmittedBy.API)
    q = LimitedQueue(ledger, clock, entropy, NO_LIMITS)
    clock.advance(-60)
    earlier = q.put("a")
    clock.advance(60)
    work = (routing.intents, SpawnPoint(), queue.tx_config, Ids(entropy.uuid()), clock.now())
    (routed,) = ledger.write(lambda tx: close.write_intents(tx, *work)).job_ids
    assert q.take_ids(8) == [routed, earlier]


def test_priority_of_the_start_of_a_run(
    ledger: Ledger, clock: FakeClock, entropy: CountingEntropy
) -> None:
    steps = [{"id": "both", "split": [{"uses": "a"}, {"uses": "b"}]}, {"uses": "c"}]
    queue = Pipelines(ledger, clock, entropy, [{"name": "p", "on": "go", "steps": steps}])
    event = Event("go", {}, None, "api", clock.now(), entropy.uuid())
    start = queue.tx_config.router.start("p", event, submitted_by=SubmittedBy.API, priority=600)
    assert start is not None
    q = LimitedQueue(ledger, clock, entropy, NO_LIMITS)
    earlier = q.put("a")
    work = ((start,), SpawnPoint(), queue.tx_config, Ids(entropy.uuid()), clock.now())
    first = ledger.write(lambda tx: close.write_intents(tx, *work)).job_ids
    assert len(first) == 2
    assert q.take_ids(8) == [*first, earlier]
