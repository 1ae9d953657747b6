"""A worker: one thread, one slot, one job at a time through the five rooms."""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Protocol

from ductile.clock import Clock, Entropy
from ductile.core.judge import judge, prepare_failed
from ductile.core.prepare import Unrunnable, prepare
from ductile.errors import LedgerBroken, LedgerError
from ductile.failpoint import failpoint
from ductile.model import Cancellation, Ending, Job, JobStatus, Launch, Outcome, Settlement
from ductile.runtime.bell import Bell
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.log import logger
from ductile.store.claim import Claimed, ClaimPolicy, claim
from ductile.store.ledger import Ledger, Tx
from ductile.store.settle import settle

LEDGER_PAUSE = 1.0
CANCEL_GRACE = 5.0


class Slot(Protocol):
    def run(self, launch: Launch) -> Outcome: ...

    def cancel(self, grace: float) -> None: ...


class House(Protocol):
    """What a worker needs of the gateway around it."""

    ledger: Ledger
    clock: Clock
    entropy: Entropy
    bell: Bell
    stopping: threading.Event

    @property
    def blueprint(self) -> Blueprint: ...

    def claim_policy(self) -> ClaimPolicy: ...

    def settled(self, settlement: Settlement) -> None: ...

    def broken(self, error: LedgerBroken) -> None: ...


class Worker:
    def __init__(self, house: House, slot: Slot) -> None:
        self._house = house
        self._slot = slot
        self._log = logger("worker")
        self._guard = threading.Lock()
        self._running: Job | None = None
        self._cancelled: Cancellation | None = None

    def loop(self) -> None:
        """Work until the gateway stops; a job that runs then is ended by `cancel`."""
        house = self._house
        claimed: Claimed | None = None
        while not house.stopping.is_set() or claimed is not None:
            try:
                if claimed is None:
                    claimed = self._wait_for_job()
                else:
                    claimed = self._settle(self.perform(claimed), claim_next=True)
            except LedgerBroken as error:
                house.broken(error)
                return
            except LedgerError as error:
                self._log.error("the ledger takes no writes", error=error.message)
                house.clock.wait(house.stopping, LEDGER_PAUSE)

    def running(self, job_id: str) -> bool:
        with self._guard:
            return self._running is not None and self._running.id == job_id

    def cancel(
        self, why: Cancellation, grace: float = CANCEL_GRACE, job_id: str | None = None
    ) -> bool:
        """End the process that runs now (only that of `job_id`, where given)."""
        with self._guard:
            if self._running is None or (job_id is not None and self._running.id != job_id):
                return False
            self._cancelled = self._cancelled or why
        self._slot.cancel(grace)
        return True

    def _wait_for_job(self) -> Claimed | None:
        house = self._house
        policy, now = house.claim_policy(), house.clock.now()
        claimed = house.ledger.write(lambda tx: claim(tx, policy, now))
        if claimed is None:
            house.bell.wait()
        else:
            failpoint("claimed")
        return claimed

    def perform(self, claimed: Claimed) -> Settlement:
        """Prepare, run, judge. Whatever goes wrong in here is the attempt's failure."""
        house, job = self._house, claimed.job
        blueprint = house.blueprint
        rules = blueprint.rules(job.plugin, job.command)
        plan = blueprint.plans.get(job.plugin)
        now = house.clock.now()
        if plan is None:
            return prepare_failed(job, f"plugin {job.plugin} is not loaded", rules, now)
        launch = prepare(job, claimed.state, plan, now)
        if isinstance(launch, Unrunnable):
            return prepare_failed(job, launch.reason, rules, now)
        failpoint("prepared")
        outcome = self._run(job, launch)
        failpoint("ran")
        if outcome.stderr_truncated:
            self._log.warning("stderr was truncated", plugin=job.plugin, job_id=job.id)
        return judge(
            job,
            outcome,
            rules,
            house.clock.now(),
            house.entropy.uniform(),
            self._cancelled,
        )

    def _run(self, job: Job, launch: Launch) -> Outcome:
        with self._guard:
            self._running, self._cancelled = job, None
        try:
            if self._house.stopping.is_set():
                return self._stopped()
            return self._slot.run(launch)
        except Exception as error:  # noqa: BLE001 - a bug here must not leave the job running
            self._log.crash("a slot failed", error, plugin=job.plugin, job_id=job.id)
            return Outcome(Ending.LOST, reason=f"internal error: {error}")
        finally:
            with self._guard:
                self._running = None

    def _stopped(self) -> Outcome:
        self._cancelled = Cancellation.STOP
        return Outcome(Ending.CANCELLED)

    def _settle(self, settlement: Settlement, *, claim_next: bool) -> Claimed | None:
        """Commit the end of one job and the start of the next together."""
        house = self._house
        while True:
            take = claim_next and not house.stopping.is_set()
            policy, now = house.claim_policy(), house.clock.now()
            step = _SettleAndClaim(settlement, policy if take else None, now)
            try:
                done, claimed = house.ledger.write(step)
                break
            except LedgerBroken:
                raise
            except LedgerError as error:
                self._log.error(
                    "a settlement waits for the ledger",
                    job_id=settlement.job_id,
                    plugin=settlement.plugin,
                    error=error.message,
                )
                house.clock.wait(threading.Event(), LEDGER_PAUSE)
        failpoint("settled")
        if done is None:
            self._log.warning(
                "a settlement was dropped: the attempt had ended",
                job_id=settlement.job_id,
                plugin=settlement.plugin,
            )
        else:
            house.settled(done)
        return claimed


class _SettleAndClaim:
    """The worker's one transaction a job."""

    __slots__ = ("_now", "_policy", "_settlement")

    def __init__(self, settlement: Settlement, policy: ClaimPolicy | None, now: datetime) -> None:
        self._settlement, self._policy, self._now = settlement, policy, now

    def __call__(self, tx: Tx) -> tuple[Settlement | None, Claimed | None]:
        done = settle(tx, self._settlement)
        claimed = claim(tx, self._policy, self._now) if self._policy else None
        return done, claimed


def describe(settlement: Settlement) -> tuple[str, str]:
    """The log level and the text for the end of an attempt."""
    if settlement.status is JobStatus.SUCCEEDED:
        return "info", "job succeeded"
    if settlement.status is JobStatus.QUEUED and not settlement.counted:
        return "info", "job released"
    if settlement.status is JobStatus.QUEUED:
        return "warn", f"attempt {settlement.path[0]}, to be retried"
    return "error", f"job {settlement.status}"
