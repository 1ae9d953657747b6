"""Rate limits in the ledger: they count starts and hold no worker."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from ductile.core.flow.limits import NO_LIMITS, PluginLimits
from ductile.store.engines.api import Ledger
from ductile.store.flow import gate
from tests.conftest import CountingEntropy, FakeClock
from tests.store.flow.harness import PLUGIN, LimitedQueue, rated

Make = Callable[[PluginLimits], LimitedQueue]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    return lambda limits: LimitedQueue(ledger, clock, entropy, limits)


def test_starts_are_limited_per_period(make: Make) -> None:
    q = make(rated(6, 60, burst=2))
    ids = [q.put("a") for _ in range(5)]
    other = q.put("a", plugin="other")
    assert q.take_ids(8, 8) == [*ids[:2], other]
    opening = [effects.opens_at for effects in q.effects if effects.opens_at]
    assert opening[-1] == q.clock.now() + timedelta(seconds=10)
    q.clock.advance(9)
    assert q.take_ids(8) == []
    q.clock.advance(1)
    assert q.take_ids(8) == ids[2:3]


def test_failed_attempts_count(make: Make) -> None:
    q = make(rated(1, 60))
    ids = [q.put("a"), q.put("a")]
    (one,) = q.take(8)
    q.end(one)
    assert q.take_ids(8) == []
    q.clock.advance(60)
    assert q.take_ids(8) == ids[1:]


def test_each_key_has_its_own_rate(make: Make) -> None:
    q = make(rated(1, 60, keyed=True))
    ids = [q.put(account) for account in "aabb"]
    assert q.take_ids(8) == [ids[0], ids[2]]
    q.clock.advance(60)
    assert q.take_ids(8) == [ids[1], ids[3]]


def test_closed_key_opens_at_its_time(make: Make) -> None:
    q = make(rated(100, 1, burst=100, keyed=True))
    ids = [q.put(account) for account in "aab"]
    (one,) = q.take(1)
    until = q.clock.now() + timedelta(seconds=30)
    q.ledger.write(lambda tx: gate.close_key(tx, PLUGIN, one.job.id, until))
    q.end(one)
    assert q.take_ids(8) == ids[2:]
    q.clock.advance(30)
    assert q.take_ids(8) == ids[1:2]


def test_closing_holds_a_plugin_without_limits(make: Make) -> None:
    q = make(NO_LIMITS)
    ids = [q.put("a"), q.put("b"), q.put("b", plugin="other")]
    (one,) = q.take(1)
    until = q.clock.now() + timedelta(seconds=30)
    q.ledger.write(lambda tx: gate.close_key(tx, PLUGIN, one.job.id, until))
    assert q.take_ids(8, 8) == ids[2:]
    q.clock.advance(30)
    assert q.take_ids(8, 8) == ids[1:2]


def test_faster_rate_holds_from_the_reload_on(make: Make) -> None:
    q = make(rated(1, 3600))
    ids = [q.put("a"), q.put("a"), q.put("a")]
    assert q.take_ids(8) == ids[:1]
    q.limits = rated(1, 10)
    assert q.take_ids(8) == ids[1:2]
    q.clock.advance(10)
    assert q.take_ids(8) == ids[2:]


def test_clock_that_is_set_back_holds_no_job(make: Make) -> None:
    q = make(rated(1, 10))
    ids = [q.put("a"), q.put("a"), q.put("a")]
    assert q.take_ids(8) == ids[:1]
    q.clock.advance(-3600)
    assert q.take_ids(8) == ids[1:2]
    q.clock.advance(10)
    assert q.take_ids(8) == ids[2:]


def test_closed_key_opens_if_the_clock_is_set_back_by_days(make: Make) -> None:
    q = make(NO_LIMITS)
    ids = [q.put("a"), q.put("a"), q.put("a")]
    (one,) = q.take(1)

    def close() -> None:
        until = q.clock.now() + timedelta(seconds=30)
        q.ledger.write(lambda tx: gate.close_key(tx, PLUGIN, one.job.id, until))

    close()
    q.clock.advance(-3 * 86_400)
    assert q.take_ids(1) == ids[1:2]
    close()
    assert q.take_ids(8) == []
    q.clock.advance(30)
    assert q.take_ids(8) == ids[2:]


def test_past_rates_are_deleted(make: Make) -> None:
    q = make(rated(1, 60))
    q.put("a")
    q.take(1)
    now = q.clock.now()
    assert not q.ledger.read(lambda tx: gate.has_past_rates(tx, now))
    later = now + timedelta(seconds=60)
    assert q.ledger.read(lambda tx: gate.has_past_rates(tx, later))
    q.ledger.write(lambda tx: gate.delete_past(tx, later))
    assert not q.ledger.read(lambda tx: gate.has_past_rates(tx, later))
