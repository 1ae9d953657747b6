"""Enqueue a job: check that a plugin can run it, and build the transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.limits import dedupe_key_flaw
from ductile.core.pipelines.step_io import payload_column
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import UsageError
from ductile.model import Event, NewJob
from ductile.store.engines.api import Tx
from ductile.store.jobs import enqueue


def check_command(compiled: CompiledConfig, plugin: str, command: str) -> None:
    """Raise `UsageError` unless a loaded plugin has this command."""
    plan = compiled.plans.get(plugin)
    if plan is None:
        raise UsageError(_describe_missing(compiled, plugin), plugin=plugin)
    if command not in plan.commands:
        known = ", ".join(sorted(plan.commands))
        raise UsageError(f"plugin {plugin} has no command {command!r}; it has: {known}")


def _describe_missing(compiled: CompiledConfig, plugin: str) -> str:
    if plugin in compiled.registry.disabled:
        return f"plugin {plugin!r} is disabled (enabled: false)"
    if plugin in compiled.registry.offered:
        line = f"`{plugin}: {{}}` under plugins"
        return f"unknown plugin {plugin!r}; to load the bundled plugin, add {line}"
    refusal = compiled.registry.refusal(plugin)
    return f"unknown plugin {plugin!r}" + (f" (refused: {refusal.reason})" if refusal else "")


def build_enqueue(
    compiled: CompiledConfig, new: NewJob, *, id: str, now: datetime
) -> Callable[[Tx], enqueue.Enqueued]:
    """The transaction that queues a job, or returns the job that it duplicates."""
    if flaw := dedupe_key_flaw(new.dedupe_key):
        raise UsageError(f"dedupe_key {flaw}")
    if new.command == HANDLE:
        source = new.submitted_by.value
        event = Event(f"{source}.trigger", new.payload, new.dedupe_key, source, now, id)
        new = replace(new, payload=payload_column(HANDLE, event))
    return lambda tx: enqueue.enqueue_job(tx, new, compiled.tx_config, id=id, now=now)
