"""Enqueue a job: check that a plugin can run it, and build the transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from shlex import quote

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
        raise _explain_missing(compiled, plugin)
    if command not in plan.commands:
        known = ", ".join(sorted(plan.commands))
        raise UsageError(f"plugin {plugin} has no command {command!r}; it has: {known}")


def enable_command(plugin: str) -> str:
    """The command that enables a plugin, or mentions one that is bundled."""
    path = quote(f"plugins[{plugin}].enabled")
    return f"ductile config set {path} true && ductile system reload"


def _explain_missing(compiled: CompiledConfig, plugin: str) -> UsageError:
    found: dict[str, object] = {"plugin": plugin}
    message = f"unknown plugin {plugin!r}"
    if plugin in compiled.registry.disabled:
        file, line, _ = compiled.loaded.locate(("plugins", plugin, "enabled"))
        message = f"plugin {plugin!r} is disabled (enabled: false, {file}:{line})"
        found["run"] = enable_command(plugin)
    elif plugin in compiled.registry.offered:
        message += f"; to load the bundled plugin, add `{plugin}: {{}}` under plugins"
        found["run"] = enable_command(plugin)
    elif (refusal := compiled.registry.refusal(plugin)) is not None:
        message += f" (refused: {refusal.reason})"
        if refusal.command is None:
            found["run"] = f"ductile plugin validate {quote(plugin)}"
    return UsageError(message, **found)


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
