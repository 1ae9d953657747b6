"""Whatever happens to jobs: never more than the limit run, and none waits without a reason.

On PostgreSQL three nodes share the queue.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from ductile.model import Ending, Outcome
from ductile.store.engines.api import Ledger
from ductile.store.jobs import retries
from ductile.store.jobs.claim import ClaimedJob, claim
from tests.conftest import CountingEntropy, FakeClock
from tests.store.flow.harness import LimitedQueue, limited
from tests.store.jobs.harness import BAD, OK

LOST = Outcome(Ending.LOST, reason="the gateway was killed")
KEYS = "abcd"
STEPS = 120


class RandomLife:
    """Random operations of several nodes on one queue, and what is known of its jobs."""

    def __init__(self, q: LimitedQueue, nodes: list[Ledger], seed: int) -> None:
        self.q, self.nodes, self.random, self.limit = q, nodes, random.Random(seed), 1
        self.key: dict[str, str] = {}
        self.running: dict[str, ClaimedJob] = {}
        self.ready: dict[str, None] = {}
        self.waiting: dict[str, None] = {}
        self.dead: dict[str, None] = {}

    def step(self) -> None:
        operations = [self.put, self.put, self.put, self.claim, self.claim, self.end, self.end]
        operations += [self.fail, self.kill, self.cancel, self.promote, self.change_limit]
        operations += [self.claim_at_once, self.retry]
        self.q.ledger = self.random.choice(self.nodes)
        self.random.choice(operations)()

    def put(self) -> None:
        key = self.random.choice(KEYS)
        id = self.q.put(key)
        self.key[id] = key
        self.ready[id] = None

    def started(self, claimed: list[ClaimedJob]) -> None:
        for one in claimed:
            assert one.job.id in self.ready
            del self.ready[one.job.id]
            self.running[one.job.id] = one
            assert self.count(self.key[one.job.id]) <= self.limit

    def claim_at_once(self) -> None:
        """All nodes; those that find the plugin locked try again, as `claim` does."""
        policy, now = self.q.policy, self.q.clock.now()
        with ThreadPoolExecutor(3) as pool:
            nodes = self.nodes if len(self.nodes) > 1 else self.nodes * 3
            calls = [pool.submit(n.write, lambda tx: claim(tx, policy, now, 2)) for n in nodes]
            self.started([one for call in calls for one in call.result()])
        self.claim()

    def claim(self) -> None:
        free = self.random.randint(1, 4)
        claimed = self.q.take(free, self.random.randint(0, 3))
        self.started(claimed)
        if len(claimed) < free:
            left = {self.key[id] for id in self.ready if self.count(self.key[id]) < self.limit}
            assert left == set(), "a worker is free and an eligible job waits"

    def count(self, key: str) -> int:
        return Counter(self.key[id] for id in self.running)[key]

    def end(self, outcome: Outcome = OK) -> None:
        if not self.running:
            return
        id = self.random.choice(list(self.running))
        claimed = self.running.pop(id)
        self.q.end(claimed, outcome)
        status, _ = self.q.status(id)
        if status == "queued":
            self.waiting[id] = None
        elif status == "dead":
            self.dead[id] = None

    def fail(self) -> None:
        self.end(BAD)

    def kill(self) -> None:
        """The gateway dies, and recovery settles what it left running."""
        for _ in range(len(self.running)):
            self.end(LOST)

    def cancel(self) -> None:
        if self.ready:
            id = self.random.choice(list(self.ready))
            assert self.q.cancel(id)
            del self.ready[id]
            self.dead[id] = None

    def retry(self) -> None:
        """By an operator."""
        if self.dead:
            id = self.random.choice(list(self.dead))
            self.q.retry(id)
            del self.dead[id]
            self.ready[id] = None

    def promote(self) -> None:
        self.q.clock.advance(3600)
        now = self.q.clock.now()
        self.q.ledger.write(lambda tx: retries.promote_due(tx, now))
        self.ready.update(self.waiting)
        self.waiting.clear()

    def change_limit(self) -> None:
        self.limit = self.random.randint(1, 3)
        self.q.limits = limited(self.limit)


@pytest.mark.parametrize("seed", range(5))
def test_limit_holds_and_no_eligible_job_waits(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy, seed: int
) -> None:
    nodes = [open_ledger()]
    if nodes[0].engine == "postgres":
        nodes += [open_ledger(), open_ledger()]
    life = RandomLife(LimitedQueue(nodes[0], clock, entropy, limited()), nodes, seed)
    for _ in range(STEPS):
        life.step()
    life.promote()
    while life.running or life.ready:
        life.claim()
        life.kill()
        life.promote()


def test_three_nodes_share_the_limit(
    open_ledger: Callable[[], Ledger], clock: FakeClock, entropy: CountingEntropy
) -> None:
    first = open_ledger()
    q = LimitedQueue(first, clock, entropy, limited(2))
    ledgers = [first]
    if first.engine == "postgres":
        ledgers += [open_ledger(), open_ledger()]
    ids = {q.put(key): key for key in "aaaaabbbbb" * 2}
    policy, now, done = q.policy, clock.now(), 0
    with ThreadPoolExecutor(3) as pool:
        while done < len(ids):
            calls = [
                pool.submit(one.write, lambda tx: claim(tx, policy, now, 2)) for one in ledgers * 2
            ]
            started = [job for call in calls for job in call.result()]
            counts = Counter(ids[one.job.id] for one in started)
            assert max(counts.values()) <= 2
            assert sum(counts.values()) >= min(2, len(ids) - done)
            for one in started:
                q.end(one)
            done += len(started)
