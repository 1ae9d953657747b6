"""A queue of one plugin with limits."""

from __future__ import annotations

from ductile.clock import Ids
from ductile.core.flow.keys import FlowKey, compile_key
from ductile.core.flow.limits import Concurrency, OnFull, PluginLimits
from ductile.core.flow.rates import Rate
from ductile.core.jobs.judge import judge
from ductile.model import JobStatus, NewJob, Outcome, SubmittedBy
from ductile.store.engines.api import Effects, Ledger, Tx
from ductile.store.jobs import claim as claims
from ductile.store.jobs import close, enqueue, read, requeue
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig
from tests.conftest import CountingEntropy, FakeClock
from tests.store.jobs.harness import BASE, OK, RULES

PLUGIN = "sync"


def key(text: str = "{payload.account}") -> FlowKey:
    found = compile_key(text)
    assert isinstance(found, FlowKey)
    return found


def limited(limit: int = 1, on_full: str = "queue") -> PluginLimits:
    return PluginLimits(Concurrency(limit, key(), OnFull(on_full)))


def rated(limit: int, per: float, burst: int = 1, *, keyed: bool = False) -> PluginLimits:
    return PluginLimits(None, Rate(limit, per, burst, key() if keyed else None))


class LimitedQueue:
    def __init__(
        self, ledger: Ledger, clock: FakeClock, entropy: CountingEntropy, limits: PluginLimits
    ) -> None:
        self.ledger, self.clock, self.entropy = ledger, clock, entropy
        self.effects: list[Effects] = []
        ledger.listen(self.effects.append)
        self.limits = limits
        self.priorities: dict[str, float] = {}
        self.caps: dict[str, int] = {}

    @property
    def tx_config(self) -> TxConfig:
        limits = {PLUGIN: self.limits}
        return TxConfig(dedupe_ttl=60.0, limits=limits, priorities=self.priorities)

    @property
    def policy(self) -> ClaimPolicy:
        return ClaimPolicy(owner="boot-1", tx_config=self.tx_config, caps=self.caps)

    def put(
        self, account: str, plugin: str = PLUGIN, command: str = "poll", priority: float = 0.0
    ) -> str:
        payload = {"account": account}
        new = NewJob(plugin, command, SubmittedBy.CLI, payload, priority=priority)
        id, now, config = self.entropy.uuid(), self.clock.now(), self.tx_config
        return self.ledger.write(
            lambda tx: enqueue.enqueue_job(tx, new, config, id=id, now=now)
        ).job_id

    def take(self, workers: int = 1, prefetch: int = 0) -> list[ClaimedJob]:
        now, policy = self.clock.now(), self.policy
        return self.ledger.write(lambda tx: claims.claim(tx, policy, now, workers, prefetch))

    def take_ids(self, workers: int = 1, prefetch: int = 0) -> list[str]:
        return [one.job.id for one in self.take(workers, prefetch)]

    def end(self, claimed: ClaimedJob, outcome: Outcome = OK) -> None:
        verdict = judge(claimed.job, outcome, RULES, self.clock.now(), 0.5)
        self.ledger.write(lambda tx: settle(tx, verdict, self.tx_config, BASE))

    def cancel(self, job_id: str) -> bool:
        base, now = self.entropy.uuid(), self.clock.now()

        def work(tx: Tx) -> bool:
            job = read.load_job(tx, job_id)
            assert job is not None
            config = self.tx_config
            return close.end_queued(tx, job, JobStatus.DEAD, "cancelled", now, config, Ids(base))

        return self.ledger.write(work)

    def retry(self, job_id: str) -> None:
        now = self.clock.now()

        def work(tx: Tx) -> bool:
            job = read.load_job(tx, job_id)
            return job is not None and requeue.retry_job(tx, job, 4, now)

        assert self.ledger.write(work)

    def status(self, job_id: str) -> tuple[str, str | None]:
        found = self.ledger.read(lambda tx: read.describe_job(tx, job_id))
        assert found is not None
        return str(found["status"]), found["last_error"]  # type: ignore[return-value]
