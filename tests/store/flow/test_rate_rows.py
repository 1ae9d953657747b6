"""Many keys that share a rate: an opening costs the same with any number; on both engines."""

from __future__ import annotations

import random

import pytest

from ductile.core.flow.limits import Concurrency, OnFull, PluginLimits
from ductile.core.flow.rates import Rate
from ductile.model import NewJob, SubmittedBy
from ductile.store import verify
from ductile.store.engines.api import Ledger
from ductile.store.flow import set_aside
from ductile.store.jobs import enqueue
from ductile.store.jobs.claim import ClaimedJob
from tests.conftest import CountingEntropy, FakeClock
from tests.store.flow.harness import LimitedQueue, key

INTERVAL = 6.0


def shared(limit: int = 1, burst: int = 1) -> PluginLimits:
    """Per account as many at once, and per tenant one start every six seconds."""
    rate = Rate(10, 60.0, burst, key("{payload.tenant}"))
    return PluginLimits(Concurrency(limit, key(), OnFull.QUEUE), rate)


class RatedQueue(LimitedQueue):
    def add(self, account: str, tenant: str) -> str:
        new = NewJob("sync", "poll", SubmittedBy.CLI, {"account": account, "tenant": tenant})
        id, now, config = self.entropy.uuid(), self.clock.now(), self.tx_config
        return self.ledger.write(
            lambda tx: enqueue.enqueue_job(tx, new, config, id=id, now=now)
        ).job_id

    def take_all(self) -> list[ClaimedJob]:
        """Claim until nothing asks for a further claim."""
        found: list[ClaimedJob] = []
        for _ in range(1000):
            self.effects.clear()
            claimed = self.take(4)
            found += claimed
            if not claimed and not any(effects.ready for effects in self.effects):
                return found
        raise AssertionError("claims ask for claims without an end")

    def count_claims(self) -> int:
        """The claims of one opening."""
        self.clock.advance(INTERVAL)
        for count in range(1, 1000):
            self.effects.clear()
            for one in (claimed := self.take(1)):
                self.end(one)
            if not claimed and not any(effects.ready for effects in self.effects):
                return count
        raise AssertionError("claims ask for claims without an end")


@pytest.fixture
def q(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> RatedQueue:
    return RatedQueue(ledger, clock, entropy, shared())


def test_opening_costs_the_same_with_many_keys(q: RatedQueue) -> None:
    ids = [q.add(str(number), "t") for number in range(300)]
    started = q.take_all()
    assert [one.job.id for one in started] == ids[:1]
    q.end(started[0])
    assert [q.count_claims() for _ in range(3)] == [2, 2, 2]
    statuses = [q.status(id)[0] for id in ids[:5]]
    assert statuses == ["succeeded"] * 4 + ["queued"]


def test_key_behind_a_full_one_starts(q: RatedQueue) -> None:
    first, _blocked, other = q.add("a", "t"), q.add("a", "t"), q.add("b", "t")
    assert [one.job.id for one in q.take_all()] == [first]
    q.clock.advance(INTERVAL)
    assert [one.job.id for one in q.take_all()] == [other]


def test_rows_without_the_row_of_their_rate_are_found_again(q: RatedQueue) -> None:
    q.add("a", "t")
    waiting = q.add("b", "t")
    q.take_all()
    rate = {"plugin": "sync", "limit_key": "\x1ft", "pipeline": "\x1f"}
    assert q.ledger.write(lambda tx: tx.run("delete_key", **rate)) == 1
    assert q.ledger.write(set_aside.return_lost) == 1
    q.clock.advance(INTERVAL)
    assert [one.job.id for one in q.take_all()] == [waiting]


@pytest.mark.parametrize("seed", range(4))
def test_no_eligible_job_waits(q: RatedQueue, seed: int) -> None:
    rng = random.Random(seed)
    key_of: dict[str, tuple[str, str]] = {}
    ready: list[str] = []
    running: dict[str, ClaimedJob] = {}
    opens: dict[str, float] = {}
    now, limit = 0.0, 1
    for _ in range(120):
        for _ in range(rng.randint(0, 3)):
            account, tenant = rng.choice("abcdef"), rng.choice("tu")
            id = q.add(account, tenant)
            key_of[id] = (account, tenant)
            ready.append(id)
        if rng.random() < 0.1:
            limit = rng.randint(1, 2)
            q.limits = shared(limit)
        if ready and rng.random() < 0.2:
            id = rng.choice(ready)
            assert q.cancel(id)
            ready.remove(id)
        for id in [id for id in running if rng.random() < 0.5]:
            q.end(running.pop(id))
        if rng.random() < 0.7:
            seconds = rng.choice([1.0, INTERVAL, 30.0])
            q.clock.advance(seconds)
            now += seconds
        for one in q.take_all():
            account, tenant = key_of[one.job.id]
            assert opens.get(tenant, 0.0) <= now
            opens[tenant] = now + INTERVAL
            ready.remove(one.job.id)
            running[one.job.id] = one
            assert sum(key_of[id][0] == account for id in running) <= limit or limit == 1
        accounts = [key_of[id][0] for id in running]
        left = [
            id
            for id in ready
            if opens.get(key_of[id][1], 0.0) <= now and accounts.count(key_of[id][0]) < limit
        ]
        assert left == []
    found = verify.verify(q.ledger).violations
    assert [one for one in found if "set_aside" in one.detail] == []
