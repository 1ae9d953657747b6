"""One attempt of one job: the states that it passes, and the decisions of its life.

An attempt belongs to the dispatcher from the commit that claims its job to the commit that settles
it. `TRANSITIONS` is the whole state machine. `workers.py` moves an attempt from PREFETCHED to
JUDGING, `attempt_judge.py` from there to SETTLING, `dispatcher.py` to DONE.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import IntEnum, auto

import orjson

from ductile.core.jobs.judge import (
    judge,
    left_to_others,
    no_workspace,
    plugin_gone,
    prepare_failed,
    relay,
    switch,
    wait,
)
from ductile.core.jobs.prepare import Entered, Unrunnable, prepare
from ductile.core.jobs.trace import span_of_attempt
from ductile.core.pipelines.graph import Node, NodeKind
from ductile.core.pipelines.intents import Routing
from ductile.core.pipelines.step_io import (
    RelayMessage,
    Switched,
    entered_dedupe_key,
    entered_payload,
    judge_switch,
    prepare_relay,
)
from ductile.core.values.json_values import Failure
from ductile.core.waits.announce import announce_begin
from ductile.core.waits.begin import begin_wait
from ductile.engine.dispatch.context import AttemptContext
from ductile.engine.ingress.authenticator import hash_token
from ductile.log import logger
from ductile.model import Cancellation, Ending, Json, Launch, Outcome, Settlement, WarmStart
from ductile.store.jobs.claim import ClaimedJob

LEFT_TO_OTHERS = timedelta(minutes=15)
"""How long a job whose step this node does not know waits for a node that does."""
RETRIES_WHILE_STOPPING = 2
"""How often the commit of a settlement is retried once the gateway stops."""


class AttemptState(IntEnum):
    """Where an attempt is. Only the dispatcher's thread moves an attempt to another state."""

    PREFETCHED = auto()
    """Claimed durably. Waits in the gateway for a worker."""
    STARTING = auto()
    """Has a worker. Its launch is being prepared, which may copy files in another thread."""
    BUFFERED = auto()
    """Sent to the slot of a busy worker, which starts it when the attempts before it have ended.
    Until then it can be recalled."""
    RUNNING = auto()
    """Sent to the slot of its worker as the current launch, or started by the slot by itself."""
    SLOT_LOST = auto()
    """Its slot died or does not answer, and is being replaced in another thread."""
    JUDGING = auto()
    """Has no worker any more. Its outcome is turned into a settlement, in another thread where the
    answer is large."""
    SETTLING = auto()
    """Its settlement waits for a commit, or is being committed."""
    DONE = auto()
    """Its settlement is committed, or was given up: the ledger alone knows about the job."""


_S = AttemptState
TRANSITIONS: Mapping[AttemptState, frozenset[AttemptState]] = {
    # To JUDGING without a worker: cancelled, expired, withdrawn at a stop, or settled by `prepare`.
    _S.PREFETCHED: frozenset({_S.STARTING, _S.BUFFERED, _S.JUDGING}),
    # To JUDGING without a process: cancelled, or settled by `prepare`.
    _S.STARTING: frozenset({_S.RUNNING, _S.JUDGING}),
    # Back to PREFETCHED: recalled, or its slot died first. To JUDGING: a bug in the slot's client,
    # after which it is unknown whether the attempt started.
    _S.BUFFERED: frozenset({_S.RUNNING, _S.PREFETCHED, _S.JUDGING}),
    _S.RUNNING: frozenset({_S.JUDGING, _S.SLOT_LOST}),
    # Back to RUNNING: the slot died before it took the launch, and a new one has it.
    _S.SLOT_LOST: frozenset({_S.RUNNING, _S.JUDGING}),
    # To DONE without a settlement: a bug in our code. The orphan sweep ends the job.
    _S.JUDGING: frozenset({_S.SETTLING, _S.DONE}),
    _S.SETTLING: frozenset({_S.DONE}),
    _S.DONE: frozenset(),
}
CANCELLABLE = frozenset({_S.PREFETCHED, _S.STARTING, _S.BUFFERED, _S.RUNNING, _S.SLOT_LOST})
"""The states in which a cancellation still decides how an attempt ends."""
HAS_PROCESS = frozenset({_S.RUNNING, _S.SLOT_LOST})
"""The states in which a cancellation has to reach the slot."""


class Attempt:
    """Uses one configuration from its claim to its settlement, also across a reload."""

    settlement: Settlement
    """Set when it is SETTLING."""
    base_id: str
    """The id from which its settlement derives the ids of new rows."""

    __slots__ = (
        "_claimed",
        "_compiled",
        "_context",
        "_entered",
        "base_id",
        "cancelled",
        "claimed_at",
        "commit_alone",
        "copies_files",
        "job",
        "log_entry",
        "needs_idle_worker",
        "retries_while_stopping",
        "rules",
        "settlement",
        "state",
        "waits_for_ledger",
    )

    def __init__(self, context: AttemptContext, claimed: ClaimedJob, log_entry: int) -> None:
        """`log_entry` is the attempt's entry in the started log."""
        self._context, self._claimed = context, claimed
        self._compiled = context.compiled
        self._entered: Entered | None = None
        self.state = AttemptState.PREFETCHED
        self.job = claimed.job
        self.log_entry = log_entry
        self.rules = self._compiled.rules(self.job.plugin, self.job.command)
        self.cancelled: Cancellation | None = None
        self.claimed_at = context.clock.monotonic()
        self.copies_files = self._compiled.workspaces.wants(self.job)
        """Whether `prepare` copies files, and so may take long."""
        self.needs_idle_worker = self.copies_files
        """Whether it cannot be buffered in a busy slot."""
        self.commit_alone = False
        """Set once a transaction with this settlement and others has failed: each is retried in a
        transaction of its own, so that one cannot fail the others again."""
        self.waits_for_ledger = False
        """Set once the ledger was not available for the settlement."""
        self.retries_while_stopping = RETRIES_WHILE_STOPPING

    def move_to(self, state: AttemptState) -> None:
        """Change the state. `RuntimeError` where the table has no such transition."""
        if state not in TRANSITIONS[self.state]:
            names = f"{self.state.name} to {state.name}"
            raise RuntimeError(f"an attempt of job {self.job.id} cannot go from {names}")
        self.state = state

    @property
    def warm(self) -> WarmStart | None:
        """How its plugin is started warm; None if it is not."""
        plan = self._compiled.plans.get(self.job.plugin)
        return plan.warm if plan is not None else None

    @property
    def trace_id(self) -> str | None:
        """None if tracing is off."""
        return self._claimed.trace.trace_id if self._claimed.trace else None

    # STARTING, or before BUFFERED

    def prepare(self) -> Launch | Settlement:
        """What a slot is to run, or the settlement of a job that needs or finds no process."""
        context, job, compiled = self._context, self.job, self._compiled
        now = context.clock.now()
        if job.flaw is not None:
            return prepare_failed(job, job.flaw, self.rules, now)
        router, node = compiled.tx_config.router, None
        if job.pipeline:
            lost = router.lost(job.pipeline, job.step_path, job.plugin, job.command)
            if lost is not None:
                return self._settle_unknown_step(lost, now)
            node = router.node(job.pipeline, job.step_path)
        if gone := compiled.gone(job.plugin):
            return plugin_gone(job, gone, self.rules, now)
        if reason := compiled.workspaces.find_failure(job):
            return prepare_failed(job, reason, self.rules, now)
        try:
            workspace = compiled.workspaces.provide(job)
        except OSError as error:
            return no_workspace(job, error, self.rules, now)
        accumulated = orjson.loads(self._claimed.context)
        if node is not None and node.kind is NodeKind.SWITCH:
            return self._settle_switch(node, accumulated)
        if node is not None and node.kind is NodeKind.RELAY:
            return self._settle_relay(node, accumulated)
        if node is not None and node.kind is NodeKind.WAIT:
            return self._settle_wait(node, accumulated)
        plan = compiled.plans.get(job.plugin)
        if plan is None:
            return prepare_failed(job, f"plugin {job.plugin} is not loaded", self.rules, now)
        ready = prepare(
            job,
            self._claimed.state,
            accumulated,
            plan,
            node,
            now,
            workspace,
            traceparent=self._make_traceparent(),
        )
        if isinstance(ready, Unrunnable):
            return prepare_failed(job, ready.reason, self.rules, now)
        self._entered = ready.entered
        return ready.launch

    def _make_traceparent(self) -> bytes:
        """The trace that the plugin's own spans belong to; empty if tracing is off."""
        trace, tracing = self._claimed.trace, self._compiled.tracing
        if trace is None or tracing is None:
            return b""
        span = span_of_attempt(self.job.id, self.job.attempt)
        return trace.traceparent(span, recorded=tracing.sampler.records(trace)).encode()

    def _settle_unknown_step(self, reason: str, now: datetime) -> Settlement:
        """The settlement of a job whose step is not in this configuration.

        Where nodes share a ledger, another node may have loaded a newer configuration already.
        """
        has_other_nodes = self._context.claim_policy().shared
        if has_other_nodes and now - self.job.created_at < LEFT_TO_OTHERS:
            return left_to_others(self.job, reason, self.rules, now)
        return prepare_failed(self.job, reason, self.rules, now)

    def _settle_switch(self, node: Node, accumulated: Mapping[str, Json]) -> Settlement:
        context, job, compiled = self._context, self.job, self._compiled
        guarded = compiled.plans.get(node.config_of or "")
        config = orjson.loads(guarded.config) if guarded else {}
        payload = entered_payload(job.command, job.payload)
        judged = judge_switch(node, payload, accumulated, config, hops=job.hops)
        added = judged.accumulated if isinstance(judged, Switched) else None
        entered = Entered(payload, added, accumulated)
        now, base_id = context.clock.now(), context.entropy.uuid()
        return switch(job, judged, entered, self.rules, now, base_id)

    def _settle_relay(self, node: Node, accumulated: Mapping[str, Json]) -> Settlement:
        context, job, compiled = self._context, self.job, self._compiled
        payload = entered_payload(job.command, job.payload)
        message = prepare_relay(
            node, payload, entered_dedupe_key(job.payload), accumulated, hops=job.hops
        )
        added = message.accumulated if isinstance(message, RelayMessage) else None
        entered = Entered(payload, added, accumulated)
        sender, now = compiled.settings.service.name, context.clock.now()
        return relay(job, message, entered, self.rules, now, context.entropy.uuid(), sender)

    def _settle_wait(self, node: Node, accumulated: Mapping[str, Json]) -> Settlement:
        context, job, compiled = self._context, self.job, self._compiled
        now, token = context.clock.now(), secrets.token_urlsafe(32)
        begun = begin_wait(
            node,
            entered_payload(job.command, job.payload),
            accumulated,
            now,
            hops=job.hops,
            wait_id=context.entropy.uuid(),
            token_hash=hash_token(token),
        )
        announced = Routing()
        if not isinstance(begun, Failure):
            base = compiled.settings.api.public_url
            link = f"{base.rstrip('/')}/approve/{token}" if base else None
            router, event_id = compiled.tx_config.router, context.entropy.uuid()
            announced = announce_begin(job, begun, accumulated, router, now, event_id, link=link)
        return wait(job, begun, announced, self.rules, now)

    # JUDGING

    def judge(self, outcome: Outcome) -> Settlement:
        """The settlement that follows from what the process did."""
        context, about = self._context, {"plugin": self.job.plugin, "job_id": self.job.id}
        if outcome.stderr_truncated:
            logger("worker").warning("stderr was truncated", **about)
        settlement = judge(
            self.job,
            outcome,
            self.rules,
            context.clock.now(),
            context.entropy.uniform(),
            self.cancelled,
            self._entered,
            context.entropy.uuid(),
        )
        if settlement.remark is not None:
            logger("worker").warning(settlement.remark, **about)
        return settlement

    def judge_unstarted(self, why: Cancellation) -> Settlement:
        """The settlement of an attempt that never ran: by its own cancellation, else by `why`."""
        self.cancelled = self.cancelled or why
        return self.judge(Outcome(Ending.CANCELLED))

    def judge_bug(self, error: Exception) -> Settlement:
        """The settlement after a bug in our code: no job stays `running` because of one."""
        job, context = self.job, self._context
        log = logger("worker")
        log.crash("attempt failed with an internal error", error, plugin=job.plugin, job_id=job.id)
        lost = Outcome(Ending.LOST, reason=f"internal error: {error}")
        return judge(job, lost, self.rules, context.clock.now(), context.entropy.uniform())

    # SETTLING

    def settle_as(self, settlement: Settlement) -> None:
        """Be SETTLING with this settlement."""
        self.move_to(AttemptState.SETTLING)
        self.settlement, self.base_id = settlement, self._context.entropy.uuid()
