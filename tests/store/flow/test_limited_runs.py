"""A run whose step a limit ends has failed; on both engines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ductile.core.flow.limits import Concurrency, OnFull, PluginLimits
from ductile.store.engines.api import Ledger
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy, claim
from tests.conftest import CountingEntropy, FakeClock
from tests.store.test_pipeline_schedules import TimedPipelines

PIPELINE = {
    "name": "p",
    "on": "go",
    "steps": [{"id": "one", "uses": "a"}, {"id": "two", "uses": "b"}, {"id": "three", "uses": "c"}],
    "on_success": [{"id": "cheer", "uses": "d"}],
    "on_failure": [{"id": "report", "uses": "d"}],
}


class LimitedRuns(TimedPipelines):
    def limit(self, plugin: str, on_full: OnFull) -> None:
        limits = {plugin: PluginLimits(Concurrency(1, None, on_full))}
        self.tx_config = replace(self.tx_config, limits=limits)

    def take(self) -> ClaimedJob | None:
        policy = ClaimPolicy(owner="boot", tx_config=self.tx_config)
        claimed = self.ledger.write(lambda tx: claim(tx, policy, self.clock.now()))
        for one in claimed:
            self.began[one.job.id] = self.rules
        return claimed[0] if claimed else None

    def must_take(self) -> ClaimedJob:
        # What follows from a job that a claim ends is ready for the next claim.
        claimed = self.take() or self.take()
        assert claimed is not None
        return claimed

    def status_of(self, run: str) -> tuple[str, str]:
        [row] = self.rows("run", id=run)
        return str(row["status"]), str(row["reason"])


@pytest.fixture
def t(ledger: Ledger, clock: FakeClock, entropy: CountingEntropy) -> LimitedRuns:
    return LimitedRuns(ledger, clock, entropy, [PIPELINE])


def test_run_fails_if_its_step_is_skipped(t: LimitedRuns) -> None:
    t.limit("b", OnFull.SKIP)
    first, second = t.start("p", {}), t.start("p", {})
    t.end(t.must_take())
    t.end(t.must_take())
    running = t.must_take()
    assert running.job.step_path == "two"
    following = t.must_take()
    assert (following.job.pipeline, following.job.step_path) == ("p.on_failure", "report")
    status, reason = t.status_of(second)
    assert status == "failed"
    assert reason.startswith("step two ended as dead")
    assert "on_full: skip" in reason
    assert t.announced(second)[-1] == "pipeline.failed"
    t.end(following)
    t.end(running)
    assert t.run() == ["three", "cheer"]
    assert t.scope(first) == "ended"


def test_run_fails_if_its_step_is_superseded(t: LimitedRuns) -> None:
    t.limit("a", OnFull.CANCEL)
    first = t.start("p", {})
    running = t.must_take()
    second, third = t.start("p", {}), t.start("p", {})
    following = t.must_take()
    assert (following.job.pipeline, following.job.step_path) == ("p.on_failure", "report")
    status, reason = t.status_of(second)
    assert status == "failed"
    assert "on_full: cancel" in reason
    assert [t.scope(first), t.scope(third)] == ["open", "open"]
    t.end(following)
    t.end(running)
    assert sorted(t.run()) == sorted(["two", "three", "cheer", "one", "two", "three", "cheer"])


def test_skipped_step_does_not_count_as_success_of_the_schedule(t: LimitedRuns) -> None:
    t.limit("a", OnFull.SKIP)
    t.see()
    t.start("p", {})
    t.must_take()
    assert len(t.after(3600).job_ids) == 1
    t.must_take()
    assert sorted(run["status"] for run in t.runs() if run["pipeline"] == "p") == ["failed", "open"]
    assert t.entry()["last_success_at"] is None
