"""`plugin trace`: observes one run of a plugin, and proposes the sandbox that it needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import Entropy
from ductile.core.jobs.prepare import Ready
from ductile.core.jobs.propose_sandbox import Grants, ObservedRun, Proposal, propose
from ductile.core.jobs.sandbox import ENFORCE, SandboxPlan, SandboxSpec
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.workspaces import temporary_tree
from ductile.errors import Refused
from ductile.model import JobStatus, Outcome
from ductile.operations.dry_run.plugin import Attempted, PluginTest, attempt, find_plan
from ductile.plugins.sandbox import plan_granted
from ductile.runner.observe.observer_pool import CannotObserve, observe
from ductile.runner.observe.record import Record
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.landlock import DEVICES
from ductile.runner.sandbox.policy import Support, decode

Document = dict[str, Any]
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class TraceRequest:
    test: PluginTest
    verifies: bool
    """Whether the plugin is run again in the proposed sandbox."""


def trace(
    compiled: CompiledConfig, request: TraceRequest, now: datetime, entropy: Entropy
) -> Document:
    """Raises `Refused` if the plugin cannot be run, or cannot be observed on this system."""
    test = request.test
    plan = replace(find_plan(compiled, test.plugin), sandbox=None, warm=None)
    support = restrict.probe()
    records: list[Record] = []
    with temporary_tree() as tree:
        temporary = str(tree)

        def start(ready: Ready) -> Outcome:
            env = {**ready.launch.env, "TMPDIR": temporary}
            try:
                outcome, record = observe(replace(ready.launch, env=env))
            except CannotObserve as error:
                raise Refused(f"cannot observe plugin {test.plugin} here: {error}") from None
            records.append(record)
            return outcome

        observed = attempt(compiled, test, plan, now, entropy, start)
    [record] = records
    needed = _grant(compiled, test.plugin, SandboxSpec(level=ENFORCE), support)
    proposal = propose(
        _read_record(record),
        _grants_of(compiled, needed, temporary, plan.env.get("HOME", "")),
        limits_processes=not support.is_root,
    )
    spec = replace(proposal.spec, level=ENFORCE)
    again: Attempted | str | None = None
    if request.verifies:
        granted = _grant(compiled, test.plugin, spec, support)
        again = granted.refusal or attempt(
            compiled, test, replace(plan, sandbox=granted), now, entropy
        )
    return _describe(compiled, test, record, proposal, observed, again)


def _grant(compiled: CompiledConfig, name: str, spec: SandboxSpec, support: Support) -> SandboxPlan:
    settings = compiled.settings
    return plan_granted(
        compiled.registry.plugins[name],
        spec,
        private=compiled.private,
        state_dir=settings.state_dir,
        env=compiled.plans[name].env,
        support=support,
    )


def _grants_of(compiled: CompiledConfig, needed: SandboxPlan, temporary: str, home: str) -> Grants:
    policy = decode(needed.policy)
    return Grants(
        read=policy.read,
        write=(*policy.write, *DEVICES, temporary),
        hidden=[os.path.realpath(path) for path in compiled.private],
        broad=[os.path.realpath(home)] if home else [],
    )


def _read_record(record: Record) -> ObservedRun:
    return ObservedRun(
        paths=record.paths,
        tcp=record.tcp,
        udp=record.udp,
        needs_all=record.needs_all,
        unix=record.unix,
        families=record.families,
        memory=record.memory,
        cpu_time=record.cpu_time,
        file_size=record.file_size,
        tasks=record.tasks,
    )


def _describe(
    compiled: CompiledConfig,
    test: PluginTest,
    record: Record,
    proposal: Proposal,
    observed: Attempted,
    again: Attempted | str | None,
) -> Document:
    shown: Callable[[Any], Any] = compiled.redactor.document
    notes = list(proposal.notes)
    if record.missed:
        notes.append(f"{record.missed} system calls could not be read: the proposal may lack paths")
    if observed.settlement.path[0] is not JobStatus.SUCCEEDED:
        notes.insert(0, "the observed run failed: the proposal lacks what it would do next")
    return {
        "plugin": test.plugin,
        "command": test.command,
        "observed": shown(_describe_attempt(observed)),
        "measured": {
            "memory": record.memory,
            "processes": record.tasks,
            "cpu_time": round(record.cpu_time, 3),
            "file_size": record.file_size,
        },
        "sandbox": shown(describe_block(proposal.spec)),
        "notes": shown(notes),
        "verified": shown(_describe_verification(observed, again)),
    }


def _describe_attempt(done: Attempted) -> Document:
    settlement = done.settlement
    return {
        "status": settlement.path[0].value,
        "error": settlement.error,
        "exit_code": done.outcome.exit_code,
        "duration_ms": round(done.outcome.duration * 1000, 1),
        "stderr": settlement.stderr,
    }


def _describe_verification(observed: Attempted, again: Attempted | str | None) -> Document | None:
    """Whether the run in the sandbox ended as the observed one; `passed` is None if it cannot
    be known here."""
    if again is None:
        return None
    if isinstance(again, str):
        return {"passed": None, "reason": again}
    passed = again.settlement.path[0] is observed.settlement.path[0]
    return {"passed": passed, "reason": None, **_describe_attempt(again)}


def describe_block(spec: SandboxSpec) -> Document:
    """The `sandbox:` block as it is written in a manifest or a configuration."""
    network = list(spec.network) if isinstance(spec.network, tuple) else spec.network
    block: Document = {
        "level": ENFORCE,
        "read": list(spec.read or ()),
        "write": list(spec.write or ()),
        "network": network,
        "memory": _in_mebibytes(spec.memory),
        "processes": spec.processes,
        "cpu_time": f"{spec.cpu_time:.0f}s" if spec.cpu_time else None,
        "file_size": _in_mebibytes(spec.file_size),
    }
    return {key: value for key, value in block.items() if value not in (None, [])}


def _in_mebibytes(size: int | None) -> str | None:
    return None if size is None else f"{size // _MEBIBYTE}MB"
