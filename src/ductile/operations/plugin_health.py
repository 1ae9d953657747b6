"""Runs the `health` command of every plugin that declares it, in parallel, outside the queue."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, Entropy
from ductile.core.jobs.commands import HEALTH
from ductile.core.jobs.judge import Rules, judge, shortened
from ductile.core.jobs.plugin_protocol import Response, read_response
from ductile.core.jobs.prepare import PluginPlan, Unrunnable, prepare
from ductile.engine.config.compiled import CompiledConfig
from ductile.model import MIB, Ending, Job, JobStatus, Outcome, Settlement, make_unstored_job
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import plugin_state

PARALLEL_CHECKS = 8
STDOUT_CAP = MIB
"""Maximum size of a response: several are in memory at once."""


@dataclass(frozen=True, slots=True)
class HealthCheck:
    healthy: bool
    detail: str
    duration_ms: float


def check_plugins(
    compiled: CompiledConfig, ledger: Ledger | None, clock: Clock, entropy: Entropy
) -> dict[str, HealthCheck]:
    """Return the health of each plugin by name; nothing is recorded and no state changes."""
    plans = [plan for plan in compiled.plans.values() if HEALTH in plan.commands]
    if not plans:
        return {}
    states = ledger.read(lambda tx: _states(tx, plans)) if ledger else {}
    pool = RunnerPool(min(PARALLEL_CHECKS, len(plans)), owns_children_after_loss=True)
    pool.start()
    slots = [pool.slot(index) for index in range(min(PARALLEL_CHECKS, len(plans)))]
    # A parsed response takes many times the memory of its bytes: parse one at a time.
    parsing = threading.Lock()

    def check(plan: PluginPlan) -> tuple[str, HealthCheck]:
        slot = slots.pop()
        try:
            job = make_unstored_job(entropy.uuid(), plan.name, HEALTH, {}, clock.now())
            outcome = _run(job, plan, states.get(plan.name, "{}"), slot, clock)
        finally:
            slots.append(slot)
        with parsing:
            return plan.name, _judge_check(job, outcome, compiled.rules(plan.name, HEALTH), clock)

    try:
        with ThreadPoolExecutor(len(slots)) as threads:
            return dict(threads.map(check, plans))
    finally:
        pool.stop()


def _states(tx: Tx, plans: list[PluginPlan]) -> dict[str, str]:
    return {plan.name: plugin_state.load_state_text(tx, plan.name) for plan in plans}


def _run(job: Job, plan: PluginPlan, state_text: str, slot: SlotClient, clock: Clock) -> Outcome:
    ready = prepare(job, state_text, {}, plan, None, clock.now())
    if isinstance(ready, Unrunnable):
        return Outcome(Ending.LOST, reason=ready.reason)
    return slot.run(replace(ready.launch, stdout_cap=STDOUT_CAP))


def _judge_check(job: Job, outcome: Outcome, rules: Rules, clock: Clock) -> HealthCheck:
    if outcome.stdout_overflowed:
        detail = f"the response is larger than {STDOUT_CAP // MIB} MiB"
        return HealthCheck(False, detail, round(outcome.duration * 1000, 1))
    judged = judge(job, outcome, rules, clock.now(), 0.0)
    healthy = judged.status is JobStatus.SUCCEEDED
    detail = rules.redactor.text(_result_text(outcome)) if healthy else _failure_text(judged)
    return HealthCheck(healthy, shortened(detail), round(outcome.duration * 1000, 1))


def _result_text(outcome: Outcome) -> str:
    response = read_response(outcome.stdout, overflowed=outcome.stdout_overflowed)
    assert isinstance(response, Response)
    return str(response.result or "ok")


def _failure_text(judged: Settlement) -> str:
    """The error with a line of stderr, because a health check leaves no log to look at."""
    error = judged.error or "failed"
    lines = (judged.stderr or "").strip().splitlines()
    has_line = "; stderr: " in error
    return f"{error}; stderr: {lines[0]}" if lines and not has_line else error
