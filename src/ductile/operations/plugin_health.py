"""`health` on demand: every plugin that declares it, side by side, outside the queue."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ductile.clock import Clock, Entropy
from ductile.core.jobs.commands import HEALTH
from ductile.core.jobs.judge import Rules, judge, shortened
from ductile.core.jobs.plugin_protocol import Response, read_response
from ductile.core.jobs.prepare import PluginPlan, Unrunnable, prepare
from ductile.engine.config.compiled import CompiledConfig
from ductile.model import MIB, Ending, Job, JobStatus, Outcome, Settlement
from ductile.record import dataclass
from ductile.runner.client import Slot
from ductile.runner.pool import RunnerPool
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import plugin_state

SIDE_BY_SIDE = 8
ANSWER_CAP = MIB
"""Of a check-up's stdout: many are kept at once."""


@dataclass(frozen=True, slots=True)
class Checkup:
    healthy: bool
    detail: str
    duration_ms: float


def check_up(
    compiled: CompiledConfig, ledger: Ledger | None, clock: Clock, entropy: Entropy
) -> dict[str, Checkup]:
    """Run each plugin's `health`; nothing of it is recorded, no state is changed."""
    plans = [plan for plan in compiled.plans.values() if HEALTH in plan.commands]
    if not plans:
        return {}
    states = ledger.read(lambda tx: _states(tx, plans)) if ledger else {}
    pool = RunnerPool(min(SIDE_BY_SIDE, len(plans)))
    pool.start()
    slots = [pool.slot(index) for index in range(min(SIDE_BY_SIDE, len(plans)))]
    # What an answer holds takes many times its own room: one after the other.
    reading = threading.Lock()

    def one(plan: PluginPlan) -> tuple[str, Checkup]:
        slot = slots.pop()
        try:
            job = _job(plan, clock, entropy)
            outcome = _run(job, plan, states.get(plan.name, "{}"), slot, clock)
        finally:
            slots.append(slot)
        with reading:
            return plan.name, _read(job, outcome, compiled.rules(plan.name, HEALTH), clock)

    try:
        with ThreadPoolExecutor(len(slots)) as threads:
            return dict(threads.map(one, plans))
    finally:
        pool.stop()


def _states(tx: Tx, plans: list[PluginPlan]) -> dict[str, str]:
    return {plan.name: plugin_state.text(tx, plan.name) for plan in plans}


def _job(plan: PluginPlan, clock: Clock, entropy: Entropy) -> Job:
    now = clock.now()
    return Job(
        id=entropy.uuid(),
        plugin=plan.name,
        command=HEALTH,
        payload={},
        status=JobStatus.RUNNING,
        attempt=1,
        max_attempts=1,
        submitted_by="cli",
        dedupe_key=None,
        created_at=now,
        started_at=now,
        completed_at=None,
        next_retry_at=None,
        last_error=None,
        parent_job_id=None,
        source_event_id=None,
        owner=None,
    )


def _run(job: Job, plan: PluginPlan, state_text: str, slot: Slot, clock: Clock) -> Outcome:
    ready = prepare(job, state_text, {}, plan, None, clock.now())
    if isinstance(ready, Unrunnable):
        return Outcome(Ending.LOST, reason=ready.reason)
    return slot.run(replace(ready.launch, stdout_cap=ANSWER_CAP))


def _read(job: Job, outcome: Outcome, rules: Rules, clock: Clock) -> Checkup:
    if outcome.stdout_overflowed:
        detail = f"its answer is larger than {ANSWER_CAP // MIB} MiB"
        return Checkup(False, detail, round(outcome.duration * 1000, 1))
    judged = judge(job, outcome, rules, clock.now(), 0.0)
    healthy = judged.status is JobStatus.SUCCEEDED
    detail = rules.redactor.text(_said(outcome)) if healthy else _wrong(judged)
    return Checkup(healthy, shortened(detail), round(outcome.duration * 1000, 1))


def _said(outcome: Outcome) -> str:
    response = read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)
    assert isinstance(response, Response)
    return str(response.result or "ok")


def _wrong(judged: Settlement) -> str:
    """What a job would say; nobody can look at the stderr of a check-up, so how that begins too."""
    error = judged.error or "failed"
    lines = (judged.stderr or "").strip().splitlines()
    return f"{error}; stderr: {lines[0]}" if lines else error
