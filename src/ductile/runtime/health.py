"""`health` on demand: every plugin that declares it, side by side, outside the queue."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from ductile.clock import Clock, Entropy
from ductile.core.command import HEALTH
from ductile.core.prepare import PluginPlan, Unrunnable, prepare
from ductile.core.protocol import Response, read_response
from ductile.core.redact import Redactor
from ductile.model import Ending, Job, JobStatus, Outcome
from ductile.record import dataclass
from ductile.runner.client import Slot
from ductile.runner.pool import RunnerPool
from ductile.runtime.blueprint import Blueprint
from ductile.store import state
from ductile.store.ledger import Ledger, Tx

SIDE_BY_SIDE = 8


@dataclass(frozen=True, slots=True)
class Checkup:
    healthy: bool
    detail: str
    duration_ms: float


def check_up(
    blueprint: Blueprint, ledger: Ledger | None, clock: Clock, entropy: Entropy
) -> dict[str, Checkup]:
    """Run each plugin's `health`; nothing of it is recorded, no state is changed."""
    plans = [plan for plan in blueprint.plans.values() if HEALTH in plan.commands]
    if not plans:
        return {}
    states = ledger.read(lambda tx: _states(tx, plans)) if ledger else {}
    pool = RunnerPool(min(SIDE_BY_SIDE, len(plans)))
    pool.start()
    slots = [pool.slot(index) for index in range(min(SIDE_BY_SIDE, len(plans)))]

    def one(plan: PluginPlan) -> tuple[str, Checkup]:
        slot = slots.pop()
        try:
            outcome = _run(plan, states.get(plan.name, "{}"), slot, clock, entropy)
        finally:
            slots.append(slot)
        return plan.name, _read(outcome, blueprint.redactor)

    try:
        with ThreadPoolExecutor(len(slots)) as threads:
            return dict(threads.map(one, plans))
    finally:
        pool.stop()


def _states(tx: Tx, plans: list[PluginPlan]) -> dict[str, str]:
    return {plan.name: state.text(tx, plan.name) for plan in plans}


def _run(plan: PluginPlan, state_text: str, slot: Slot, clock: Clock, entropy: Entropy) -> Outcome:
    now = clock.now()
    job = Job(
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
    ready = prepare(job, state_text, {}, plan, None, now)
    if isinstance(ready, Unrunnable):
        return Outcome(Ending.LOST, reason=ready.reason)
    return slot.run(ready.launch)


def _read(outcome: Outcome, redactor: Redactor) -> Checkup:
    healthy, detail = False, outcome.reason or outcome.ending.value
    if outcome.ending in (Ending.EXITED, Ending.LINGERED):
        response = read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)
        if not isinstance(response, Response):
            detail = response.reason
        elif response.status == "error":
            detail = response.error or "the plugin reported an error"
        elif outcome.exit_code not in (0, None):
            detail = f"exit code {outcome.exit_code}"
        else:
            healthy, detail = True, str(response.result or "ok")
    return Checkup(healthy, redactor.text(detail), round(outcome.duration * 1000, 1))
