"""A scheduler without threads, over a real ledger and a fake clock."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ductile.core.jobs.judge import judge
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.scheduling.scheduler import Scheduler
from ductile.model import Ending, Outcome
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.jobs import claim as claims
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy
from ductile.store.jobs.settle import settle
from tests.conftest import CountingEntropy, FakeClock
from tests.engine.site import Site

GOOD = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": 1}')
BAD = Outcome(Ending.EXITED, exit_code=1, stdout=b'{"status": "error", "error": "no"}')
MINE = ClaimPolicy(owner="boot")
HOUR, DAY, YEAR = 3600.0, 86_400.0, 365 * 86_400.0


class SchedulerHarness:
    """Ticks when the test calls it; jobs end when the test settles them."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.clock, self.entropy = FakeClock(), CountingEntropy()
        self.ledger: Any = SqliteLedger(site.state / "state.db")
        self.ledger.start()
        self.unready: dict[str, str] = {}
        self.ticks = 0
        self.start()

    def start(self) -> None:
        """Start over, like a new gateway process."""
        self.scheduler = Scheduler(
            self.ledger,
            self.clock,
            self.entropy,
            unready=lambda: self.unready,
        )
        self.reload()

    def compiled(self) -> CompiledConfig:
        return build(self.site.load(), boot_marker="m:b", environ=self.site.environ)

    def reload(self) -> None:
        self.adopted = self.compiled()
        self.scheduler.adopt(self.adopted)

    def tick(self) -> float:
        self.ticks += 1
        return self.scheduler.tick(self.clock.now())

    def run(self, seconds: float, outcome: Outcome | None = GOOD) -> None:
        """Run the loop for this long on the fake clock; jobs end at once with `outcome`."""
        left, most = seconds, self.ticks + 100 + seconds / 10
        seen = -1
        while True:
            wait = self.tick()
            if outcome is not None and self._transactions() > seen:
                self.finish(outcome)
                seen = self._transactions()
            assert self.ticks < most, "the loop does not sleep"
            if left <= 0:
                return
            step = min(wait, left)
            self.clock.advance(step)
            left -= step

    def _transactions(self) -> int:
        """The number so far: a tick that wrote nothing has queued no job."""
        count: int = self.ledger.health()["transactions"]
        return count

    def finish(self, outcome: Outcome = GOOD) -> int:
        """Settle every queued job; returns how many."""
        count = 0
        while True:
            now = self.clock.now()
            claimed = self.ledger.write(lambda tx, now=now: claims.claim(tx, MINE, now))
            if not claimed:
                return count
            self._settle(claimed[0], outcome)
            count += 1

    def _settle(self, claimed: ClaimedJob, outcome: Outcome) -> None:
        compiled, base_id = self.adopted, self.entropy.uuid()
        rules = compiled.rules(claimed.job.plugin, claimed.job.command)
        verdict = judge(claimed.job, outcome, rules, self.clock.now(), 0.5)
        self.ledger.write(lambda tx: settle(tx, verdict, compiled.tx_config, base_id))

    def claim(self) -> str:
        now = self.clock.now()
        (claimed,) = self.ledger.write(lambda tx: claims.claim(tx, MINE, now))
        return str(claimed.job.id)

    def slots(self, plugin: str = "echo", id: str = "default") -> list[dict[str, Any]]:
        return self.ledger.read(
            lambda tx: tx.dicts("slots_since", plugin=plugin, schedule_id=id, since="")
        )

    def fires(self, plugin: str = "echo", id: str = "default") -> list[str]:
        return [row["slot"] for row in self.slots(plugin, id) if row["job_id"]]

    def reasons(self, plugin: str = "echo", id: str = "default") -> Counter[str | None]:
        return Counter(row["reason"] for row in self.slots(plugin, id))
