"""Orphaned jobs are settled, and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.dispatch import workers
from ductile.engine.recovery import orphans as module
from ductile.engine.recovery.orphans import MIN_CHECKS, OrphanSweeper
from ductile.model import NewJob, SubmittedBy
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import enqueue, read
from ductile.store.jobs.claim import ClaimPolicy, claim
from tests.conftest import CountingEntropy, FakeClock
from tests.engine.site import OK, Site
from tests.waiting import until

BOOT = "boot"


class SweeperHarness:
    """A ledger with running jobs, and the ids that the gateway owns."""

    def __init__(self, site: Site, clock: FakeClock, entropy: CountingEntropy) -> None:
        site.plugin("echo", OK, manifest="concurrency_safe: true\n")
        self.clock, self.entropy = clock, entropy
        self.ledger = SqliteLedger(site.state / "state.db")
        self.ledger.start()
        self.compiled: CompiledConfig = build(site.load(), boot_marker="m:b", environ=site.environ)
        self.owned: set[str] = set()
        self.sweeper = OrphanSweeper(
            self.ledger, BOOT, lambda: self.owned, lambda: self.compiled, entropy
        )

    def claim_job(self, owner: str = BOOT) -> str:
        new = NewJob("echo", "poll", SubmittedBy.CLI)
        id, now = self.entropy.uuid(), self.clock.now()
        tx_config = self.compiled.tx_config
        self.ledger.write(lambda tx: enqueue.enqueue_job(tx, new, tx_config, id=id, now=now))
        assert self.ledger.write(lambda tx: claim(tx, ClaimPolicy(owner), now))
        return id

    def check(self, times: int = 1) -> None:
        for _ in range(times):
            self.clock.advance(self.sweeper.tick(self.clock.now()))

    def state(self, id: str) -> tuple[object, object, object]:
        job = self.ledger.read(lambda tx: read.describe_job(tx, id))
        assert job is not None
        return job["status"], job["attempt"], job["last_error"]


@pytest.fixture
def harness(site: Site, clock: FakeClock, entropy: CountingEntropy) -> Iterator[SweeperHarness]:
    harness = SweeperHarness(site, clock, entropy)
    yield harness
    harness.ledger.close()


def test_orphaned_job_is_settled_as_lost_and_retried(harness: SweeperHarness) -> None:
    id = harness.claim_job()
    harness.check(MIN_CHECKS - 1)
    assert harness.state(id) == ("running", 1, None)
    harness.check()
    assert harness.state(id) == ("queued", 2, "the gateway lost track of this job")


def test_owned_job_is_left_alone(harness: SweeperHarness) -> None:
    harness.owned.add(id := harness.claim_job())
    harness.check(100)
    assert harness.state(id) == ("running", 1, None)


def test_job_of_another_node_is_left_alone(harness: SweeperHarness) -> None:
    id = harness.claim_job(owner="another")
    harness.check(100)
    assert harness.state(id) == ("running", 1, None)


def test_job_owned_at_one_check_is_not_orphaned(harness: SweeperHarness) -> None:
    id = harness.claim_job()
    harness.check(MIN_CHECKS - 1)
    harness.owned.add(id)
    harness.check()
    harness.owned.clear()
    harness.check(MIN_CHECKS - 1)
    assert harness.state(id) == ("running", 1, None)


def test_checks_are_counted_per_attempt(harness: SweeperHarness) -> None:
    """The job was settled, retried and claimed again between two checks."""
    id = harness.claim_job()
    harness.check(MIN_CHECKS - 1)
    harness.ledger.write(lambda tx: tx.run("settle_job", **_retried(id)))
    assert harness.ledger.write(lambda tx: claim(tx, ClaimPolicy(BOOT), harness.clock.now()))
    harness.check()
    assert harness.state(id) == ("running", 2, None)


def _retried(id: str) -> dict[str, object]:
    nothing = dict.fromkeys(("completed_at", "retry_at", "error"))
    guard = {"id": id, "attempt": 1, "owner": BOOT}
    return {**guard, **nothing, "status": "queued", "next_attempt": 2, "uncounted": 0}


def test_unsettleable_orphan_does_not_block_others(
    harness: SweeperHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursed, other = harness.claim_job(), harness.claim_job()
    settle: Callable[..., object] = module.settle

    def settled(tx: object, settlement: object, *more: object) -> object:
        if settlement.job_id == cursed:  # type: ignore[attr-defined]
            raise RuntimeError("a bug")
        return settle(tx, settlement, *more)

    monkeypatch.setattr(module, "settle", settled)
    harness.check(MIN_CHECKS)
    assert [harness.state(id)[0] for id in (cursed, other)] == ["running", "queued"]


def test_gateway_settles_a_job_whose_settlement_raised_an_error(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.plugin("echo", OK)
    with site.opened() as running:

        def broken(*_: object) -> None:
            patch.undo()
            raise RuntimeError("a bug")

        patch = pytest.MonkeyPatch()
        patch.setattr(workers, "Attempt", broken)
        monkeypatch.setattr(module, "CHECK_SECONDS", 0.01)
        running.gateway.start()
        id = running.put("echo")
        until(lambda: ("job.retrying", id) in running.list_notices())
        running.gateway.stop()
