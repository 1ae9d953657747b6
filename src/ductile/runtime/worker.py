"""A worker: one thread, one slot, one job at a time through the five rooms."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import orjson

from ductile.clock import Clock, Entropy
from ductile.core.entering import (
    RelayMessage,
    Switched,
    entered_dedupe_key,
    entered_payload,
    judge_switch,
    prepare_relay,
)
from ductile.core.judge import judge, prepare_failed, relay, switch
from ductile.core.node import Node, NodeKind
from ductile.core.prepare import Entered, Unrunnable, prepare
from ductile.errors import LedgerBroken, LedgerError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.model import Cancellation, Ending, Job, JobStatus, Json, Launch, Outcome, Settlement
from ductile.runtime.bell import Bell
from ductile.runtime.blueprint import Blueprint
from ductile.store.chart import Chart
from ductile.store.claim import Claimed, ClaimPolicy, claim
from ductile.store.ledger import Ledger, Tx
from ductile.store.settle import settle

LEDGER_PAUSE = 1.0
TRIES_WHILE_STOPPING = 2
"""How often a settlement that the ledger refuses is tried again once the gateway stops."""
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
                    claimed = self.settle(self._attempt(claimed), claim_next=True)
            except LedgerBroken as error:
                house.broken(error)
                return
            except LedgerError as error:
                self._log.error("the ledger takes no writes", error=error.message)
                house.clock.wait(house.stopping, LEDGER_PAUSE)
            except Exception as error:  # noqa: BLE001 - a worker outlives every bug but its own end
                self._log.crash("a worker met a bug", error)
                claimed = None
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
            # Inside the guard: the slot cannot have gone on to the next job.
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

    def _attempt(self, claimed: Claimed) -> Settlement:
        """`perform`, where even a bug of ours ends in a settlement: no job is left running."""
        try:
            return self.perform(claimed)
        except Exception as error:  # noqa: BLE001
            job, house = claimed.job, self._house
            self._log.crash("an attempt failed", error, plugin=job.plugin, job_id=job.id)
            lost = Outcome(Ending.LOST, reason=f"internal error: {error}")
            rules = house.blueprint.rules(job.plugin, job.command)
            return judge(job, lost, rules, house.clock.now(), house.entropy.uniform())

    def perform(self, claimed: Claimed) -> Settlement:
        """Prepare, run, judge."""
        house, job = self._house, claimed.job
        blueprint = house.blueprint
        rules = blueprint.rules(job.plugin, job.command)
        now = house.clock.now()
        if job.flaw is not None:
            return prepare_failed(job, job.flaw, rules, now)
        node = blueprint.chart.router.node(job.pipeline, job.step_path) if job.pipeline else None
        if job.pipeline and node is None:
            reason = f"step {job.step_path} is gone from pipeline {job.pipeline}"
            return prepare_failed(job, reason, rules, now)
        context = orjson.loads(claimed.context)
        if node is not None and node.kind is NodeKind.SWITCH:
            return self._switch(claimed.job, node, context, blueprint)
        if node is not None and node.kind is NodeKind.RELAY:
            return self._relay(claimed.job, node, context, blueprint)
        plan = blueprint.plans.get(job.plugin)
        if plan is None:
            return prepare_failed(job, f"plugin {job.plugin} is not loaded", rules, now)
        try:
            workspace = blueprint.workspaces.provide(job)
        except OSError as error:
            return prepare_failed(job, f"no workspace: {error}", rules, now)
        ready = prepare(job, claimed.state, context, plan, node, now, workspace)
        if isinstance(ready, Unrunnable):
            return prepare_failed(job, ready.reason, rules, now)
        failpoint("prepared")
        outcome = self._run(job, ready.launch)
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
            ready.entered,
            house.entropy.uuid(),
        )

    def _switch(
        self, job: Job, node: Node, context: Mapping[str, Json], blueprint: Blueprint
    ) -> Settlement:
        guarded = blueprint.plans.get(node.config_of or "")
        config = orjson.loads(guarded.config) if guarded else {}
        payload = entered_payload(job.command, job.payload)
        judged = judge_switch(node, payload, context, config)
        blueprint.workspaces.provide(job)
        accumulated = judged.accumulated if isinstance(judged, Switched) else None
        entered = Entered(payload, accumulated, context)
        rules = blueprint.rules(job.plugin, job.command)
        base_id = self._house.entropy.uuid()
        return switch(job, judged, entered, rules, self._house.clock.now(), base_id)

    def _relay(
        self, job: Job, node: Node, context: Mapping[str, Json], blueprint: Blueprint
    ) -> Settlement:
        payload = entered_payload(job.command, job.payload)
        message = prepare_relay(node, payload, entered_dedupe_key(job.payload), context)
        blueprint.workspaces.provide(job)
        accumulated = message.accumulated if isinstance(message, RelayMessage) else None
        entered = Entered(payload, accumulated, context)
        rules = blueprint.rules(job.plugin, job.command)
        base_id, now = self._house.entropy.uuid(), self._house.clock.now()
        us = blueprint.settings.service.name
        return relay(job, message, entered, rules, now, base_id, us)

    def _run(self, job: Job, launch: Launch) -> Outcome:
        with self._guard:
            self._running, self._cancelled = job, None
        try:
            if self._house.stopping.is_set():
                return self._stopped()
            return self._slot.run(launch)
        finally:
            with self._guard:
                self._running = None

    def _stopped(self) -> Outcome:
        self._cancelled = Cancellation.STOP
        return Outcome(Ending.CANCELLED)

    def settle(self, settlement: Settlement, *, claim_next: bool = False) -> Claimed | None:
        """Commit the end of one job and the start of the next together."""
        house, base_id = self._house, self._house.entropy.uuid()
        tries_left = TRIES_WHILE_STOPPING
        while True:
            take = claim_next and not house.stopping.is_set()
            policy, now = house.claim_policy(), house.clock.now()
            step = _SettleAndClaim(
                settlement, house.blueprint.chart, base_id, policy if take else None, now
            )
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
                if house.stopping.is_set():
                    tries_left -= 1
                    if tries_left < 0:
                        # The row stays `running`: the next start counts the attempt as lost.
                        return None
                house.clock.wait(threading.Event(), LEDGER_PAUSE)
        failpoint("settled")
        if done is None:
            self._log.warning(
                "a settlement was dropped: the attempt had ended",
                job_id=settlement.job_id,
                plugin=settlement.plugin,
            )
        else:
            self._tell(done)
        return claimed

    def _tell(self, done: Settlement) -> None:
        try:
            self._house.settled(done)
        except Exception as error:  # noqa: BLE001 - the end is durable, and the next job claimed
            self._log.crash("after a settlement", error, job_id=done.job_id, plugin=done.plugin)


class _SettleAndClaim:
    """The worker's one transaction a job."""

    __slots__ = ("_base_id", "_chart", "_now", "_policy", "_settlement")

    def __init__(
        self,
        settlement: Settlement,
        chart: Chart,
        base_id: str,
        policy: ClaimPolicy | None,
        now: datetime,
    ) -> None:
        self._settlement, self._chart, self._base_id = settlement, chart, base_id
        self._policy, self._now = policy, now

    def __call__(self, tx: Tx) -> tuple[Settlement | None, Claimed | None]:
        done = settle(tx, self._settlement, self._chart, self._base_id)
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
