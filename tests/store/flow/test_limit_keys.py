"""Limits per key: at most so many run, and one blocked key never delays another."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from ductile.core.flow.limits import NO_LIMITS, Concurrency, OnFull, PluginLimits
from ductile.core.flow.rates import Rate
from ductile.model import Ending, Outcome
from ductile.store.engines.api import Ledger
from ductile.store.engines.pg.tx import lock_key
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.flow import limit_keys
from ductile.store.flow.limit_keys import BATCHES
from ductile.store.jobs.cancel_requests import REQUESTED
from ductile.store.jobs.claim import LOCK_RETRY
from tests.conftest import CountingEntropy, FakeClock
from tests.postgres import Server
from tests.store.flow.harness import PLUGIN, LimitedQueue, key, limited

Make = Callable[[PluginLimits], LimitedQueue]


@pytest.fixture
def make(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> Make:
    return lambda limits: LimitedQueue(ledger, clock, entropy, limits)


def test_one_job_per_key_runs(make: Make) -> None:
    q = make(limited())
    ids = [q.put(account) for account in "aabab"]
    started = q.take(8, 8)
    assert [one.job.id for one in started] == [ids[0], ids[2]]
    assert q.take_ids(8, 8) == []
    q.end(started[0])
    assert q.take_ids(8) == [ids[1]]
    q.end(started[1])
    assert q.take_ids(8) == [ids[4]]


def test_limit_above_one(make: Make) -> None:
    q = make(limited(2))
    ids = [q.put(account) for account in "aaab"]
    assert q.take_ids(8) == [ids[0], ids[1], ids[3]]


def test_jobs_without_the_value_share_one_key(make: Make) -> None:
    q = make(limited())
    ids = [q.put(""), q.put(""), q.put("b")]
    assert q.take_ids(8) == [ids[0], ids[2]]


def test_other_plugins_are_not_limited(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a"), q.put("a"), q.put("a", plugin="other"), q.put("a", plugin="other")]
    assert q.take_ids(8) == [ids[0], ids[2], ids[3]]


def test_order_of_the_queue_is_kept_over_jobs_set_aside(make: Make) -> None:
    q = make(limited())
    first = q.put("a")
    running = q.take()[0]
    older, younger = q.put("a"), q.put("b")
    assert q.take_ids(0, 1) == [], "jobs with limits are not prefetched"
    assert running.job.id == first
    q.end(running)
    assert q.take_ids(1) == [older]
    assert q.take_ids(1) == [younger]


def test_backlog_larger_than_a_claim_reads_does_not_hide_other_keys(make: Make) -> None:
    q = make(limited())
    for _ in range(sum(BATCHES) + 10):
        q.put("a")
    other = q.put("b")
    found = q.take_ids(2)
    if len(found) == 1:
        assert any(effects.ready for effects in q.effects), "the next claim is due at once"
        found += q.take_ids(1)
    assert other in found
    assert len(found) == 2


def test_raised_limit_starts_jobs_set_aside(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a") for _ in range(4)]
    assert q.take_ids(8) == ids[:1]
    q.limits = limited(3)
    assert q.take_ids(8) == ids[1:3]


def test_removed_limit_starts_jobs_set_aside(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a") for _ in range(4)]
    assert q.take_ids(8) == ids[:1]
    q.limits = NO_LIMITS
    assert q.take_ids(8) == ids[1:]


def test_jobs_enqueued_before_the_limit_share_one_key(make: Make) -> None:
    q = make(NO_LIMITS)
    ids = [q.put("a"), q.put("b")]
    q.limits = limited()
    assert q.take_ids(8) == ids[:1]


def test_retry_counts_as_a_further_start_of_its_key(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a"), q.put("a")]
    (running,) = q.take(8)
    q.end(running, Outcome(Ending.LOST))
    (second,) = q.take(8)
    assert second.job.id == ids[1]
    assert q.take_ids(8) == []


def test_init_is_not_limited(make: Make) -> None:
    q = make(limited())
    ids = [q.put(""), q.put("", command="init")]
    assert q.take_ids(8) == ids


def test_skip_ends_the_new_job_with_a_reason(make: Make) -> None:
    q = make(limited(on_full="skip"))
    ids = [q.put(account) for account in "aab"]
    assert q.take_ids(8) == [ids[0], ids[2]]
    status, reason = q.status(ids[1])
    assert status == "skipped"
    assert reason == "1 of 1 jobs with the key 'a' are running (concurrency, on_full: skip)"


def test_skip_ends_jobs_with_a_priority(make: Make) -> None:
    q = make(limited(on_full="skip"))
    first = q.put("a")
    assert q.take_ids(8) == [first]
    second, other = q.put("a", priority=600), q.put("b", priority=600)
    assert q.take_ids(8) == [other]
    assert q.status(second)[0] == "skipped"


def test_skip_ends_jobs_that_a_rate_held(make: Make) -> None:
    q = make(PluginLimits(Concurrency(1, key(), OnFull.SKIP), Rate(1, 10.0)))
    ids = [q.put(account) for account in "xaa"]
    assert q.take_ids(8) == ids[:1]
    q.clock.advance(10)
    assert q.take_ids(8) == ids[1:2]
    assert q.status(ids[2])[0] == "skipped"


def test_reload_from_queue_to_skip_ends_jobs_set_aside(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_keys, "MOST_SKIPPED", 2)
    q = make(limited())
    ids = [q.put("a") for _ in range(4)]
    assert q.take_ids(8) == ids[:1]
    q.limits = limited(on_full="skip")
    q.effects.clear()
    assert q.take_ids(8) == []
    assert [q.status(id)[0] for id in ids[1:]] == ["skipped", "skipped", "queued"]
    assert any(effects.ready for effects in q.effects), "the next claim is due at once"
    assert q.take_ids(8) == []
    assert q.status(ids[3])[0] == "skipped"


def test_reload_from_queue_to_cancel_lets_the_newest_job_win(make: Make) -> None:
    q = make(limited())
    ids = [q.put("a"), q.put("a", priority=600), q.put("a")]
    (running,) = q.take(8)
    q.limits = limited(on_full="cancel")
    for _ in range(3):
        assert q.take_ids(8) == []
    requested = [n for e in q.effects for n in e.notices if n.type == REQUESTED]
    assert [notice.job_id for notice in requested] == [running.job.id]
    waiting = [id for id in ids if q.status(id)[0] == "queued"]
    assert waiting == ids[2:]
    q.end(running)
    assert q.take_ids(8) == ids[2:]


def test_cancel_ends_the_older_jobs(make: Make) -> None:
    q = make(limited(on_full="cancel"))
    first = q.put("a")
    (running,) = q.take(8)
    second, third = q.put("a"), q.put("a")
    assert q.take_ids(8) == []
    requested = [n for e in q.effects for n in e.notices if n.type == REQUESTED]
    assert [notice.job_id for notice in requested] == [first]
    assert q.take_ids(8) == []
    requested = [n for e in q.effects for n in e.notices if n.type == REQUESTED]
    assert len(requested) == 1, "each running job is asked once per newer job"
    status, reason = q.status(second)
    assert (status, reason) == (
        "skipped",
        f"superseded by job {third} with the same key (concurrency, on_full: cancel)",
    )
    q.end(running)
    assert q.take_ids(8) == [third]


def test_plugin_at_its_parallelism_still_skips_and_cancels(make: Make) -> None:
    q = make(limited(on_full="skip"))
    q.caps = {PLUGIN: 1}
    first = q.put("a")
    (running,) = q.take(8)
    second, other = q.put("a"), q.put("b")
    assert q.take_ids(8) == []
    assert [q.status(id)[0] for id in (first, second, other)] == ["running", "skipped", "queued"]
    q.end(running)
    (running,) = q.take(8)
    assert running.job.id == other
    q.limits = limited(on_full="cancel")
    newest = q.put("b")
    assert q.take_ids(8) == []
    requested = [n.job_id for e in q.effects for n in e.notices if n.type == REQUESTED]
    assert requested == [other]
    q.end(running)
    assert q.take_ids(8) == [newest]


def test_plugin_that_another_node_checks_delays_no_other(
    postgres: Server, clock: FakeClock, entropy: CountingEntropy
) -> None:
    ledger = PostgresLedger(postgres.database())
    ledger.start()
    q = LimitedQueue(ledger, clock, entropy, limited())
    held, free = q.put("a"), q.put("a", plugin="other")
    with psycopg.connect(ledger.url) as node:
        lock = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"
        node.execute(lock, [lock_key("plugin", PLUGIN)])
        # In a thread, so that a claim that waits for the lock fails the test.
        with ThreadPoolExecutor() as pool:
            claim = pool.submit(q.take_ids, 8)
            try:
                assert claim.result(5) == [free]
            finally:
                node.rollback()
    openings = [effects.opens_at for effects in q.effects if effects.opens_at]
    assert openings == [clock.now() + LOCK_RETRY], "it is tried again soon"
    assert q.take_ids(8) == [held]
    ledger.close()
