"""One attempt of one job: from its claim to what a slot can run, from the outcome to its end."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

import orjson

from ductile.clock import Clock, Entropy
from ductile.core.jobs.judge import (
    judge,
    left_to_others,
    no_workspace,
    plugin_gone,
    prepare_failed,
    relay,
    switch,
)
from ductile.core.jobs.prepare import Entered, Unrunnable, prepare
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.step_io import (
    RelayMessage,
    Switched,
    entered_dedupe_key,
    entered_payload,
    judge_switch,
    prepare_relay,
)
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery.startup import LEFT_TO_OTHERS
from ductile.log import logger
from ductile.model import Cancellation, Ending, Json, Launch, Outcome, Settlement
from ductile.store.jobs.claim import Claimed, ClaimPolicy


class AttemptContext(Protocol):
    clock: Clock
    entropy: Entropy

    @property
    def compiled(self) -> CompiledConfig: ...

    def claim_policy(self) -> ClaimPolicy: ...


class Attempt:
    """Keeps to the compiled that it began under."""

    __slots__ = (
        "_claimed",
        "_compiled",
        "_entered",
        "_house",
        "cancelled",
        "job",
        "needs_files",
        "needs_seat",
        "rules",
        "since",
    )

    def __init__(self, house: AttemptContext, claimed: Claimed) -> None:
        self._house, self._claimed = house, claimed
        self._compiled = house.compiled
        self._entered: Entered | None = None
        self.job = claimed.job
        self.rules = self._compiled.rules(self.job.plugin, self.job.command)
        self.cancelled: Cancellation | None = None
        self.since = house.clock.monotonic()
        self.needs_files = self._compiled.workspaces.wants(self.job)
        """Whether `prepare` will copy files, which may take its time."""
        self.needs_seat = self.needs_files
        """Whether it cannot be lined up behind another."""

    def prepare(self) -> Launch | Settlement:
        """What a slot is to run, or the end of a job that needs or finds none."""
        house, job, compiled = self._house, self.job, self._compiled
        now = house.clock.now()
        if job.flaw is not None:
            return prepare_failed(job, job.flaw, self.rules, now)
        router, node = compiled.tx_config.router, None
        if job.pipeline:
            lost = router.lost(job.pipeline, job.step_path, job.plugin, job.command)
            if lost is not None:
                return self._lost(lost, now)
            node = router.node(job.pipeline, job.step_path)
        if gone := compiled.gone(job.plugin):
            return plugin_gone(job, gone, self.rules, now)
        try:
            workspace = compiled.workspaces.provide(job)
        except OSError as error:
            return no_workspace(job, error, self.rules, now)
        context = orjson.loads(self._claimed.context)
        if node is not None and node.kind is NodeKind.SWITCH:
            return self._switch(node, context)
        if node is not None and node.kind is NodeKind.RELAY:
            return self._relay(node, context)
        plan = compiled.plans.get(job.plugin)
        if plan is None:
            return prepare_failed(job, f"plugin {job.plugin} is not loaded", self.rules, now)
        ready = prepare(job, self._claimed.state, context, plan, node, now, workspace)
        if isinstance(ready, Unrunnable):
            return prepare_failed(job, ready.reason, self.rules, now)
        self._entered = ready.entered
        return ready.launch

    def _lost(self, reason: str, now: datetime) -> Settlement:
        """The end of a job whose step this configuration has not.

        Where nodes share a ledger another may have adopted already what this one will.
        """
        others = self._house.claim_policy().known is not None
        if others and now - self.job.created_at < LEFT_TO_OTHERS:
            return left_to_others(self.job, reason, self.rules, now)
        return prepare_failed(self.job, reason, self.rules, now)

    def _switch(self, node: Node, context: Mapping[str, Json]) -> Settlement:
        house, job, compiled = self._house, self.job, self._compiled
        guarded = compiled.plans.get(node.config_of or "")
        config = orjson.loads(guarded.config) if guarded else {}
        payload = entered_payload(job.command, job.payload)
        judged = judge_switch(node, payload, context, config)
        accumulated = judged.accumulated if isinstance(judged, Switched) else None
        entered = Entered(payload, accumulated, context)
        return switch(job, judged, entered, self.rules, house.clock.now(), house.entropy.uuid())

    def _relay(self, node: Node, context: Mapping[str, Json]) -> Settlement:
        house, job, compiled = self._house, self.job, self._compiled
        payload = entered_payload(job.command, job.payload)
        message = prepare_relay(node, payload, entered_dedupe_key(job.payload), context)
        accumulated = message.accumulated if isinstance(message, RelayMessage) else None
        entered = Entered(payload, accumulated, context)
        us, now = compiled.settings.service.name, house.clock.now()
        return relay(job, message, entered, self.rules, now, house.entropy.uuid(), us)

    def judge(self, outcome: Outcome) -> Settlement:
        house, about = self._house, {"plugin": self.job.plugin, "job_id": self.job.id}
        if outcome.stderr_truncated:
            logger("worker").warning("stderr was truncated", **about)
        settlement = judge(
            self.job,
            outcome,
            self.rules,
            house.clock.now(),
            house.entropy.uniform(),
            self.cancelled,
            self._entered,
            house.entropy.uuid(),
        )
        if settlement.remark is not None:
            logger("worker").warning(settlement.remark, **about)
        return settlement

    def withdrawn(self, why: Cancellation) -> Settlement:
        """Its end before it ran: as who has cancelled it wants, else `why`."""
        self.cancelled = self.cancelled or why
        return self.judge(Outcome(Ending.CANCELLED))

    def failed(self, error: Exception) -> Settlement:
        """Even a bug of ours ends in a settlement: no job is left running."""
        job, house = self.job, self._house
        log = logger("worker")
        log.crash("an attempt failed", error, plugin=job.plugin, job_id=job.id)
        lost = Outcome(Ending.LOST, reason=f"internal error: {error}")
        return judge(job, lost, self.rules, house.clock.now(), house.entropy.uniform())
