"""Taking a job in: what no plugin can do is refused, the rest is one transaction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from ductile.core.bounds import dedupe_key_flaw
from ductile.core.entering import payload_column
from ductile.errors import UsageError
from ductile.model import Event, NewJob
from ductile.runtime.blueprint import Blueprint
from ductile.store import jobs
from ductile.store.ledger import Tx

HANDLE = "handle"


def check(blueprint: Blueprint, plugin: str, command: str) -> None:
    """Refuse what no loaded plugin can do."""
    plan = blueprint.plans.get(plugin)
    if plan is None:
        refusal = next((r for r in blueprint.registry.refused if r.name == plugin), None)
        why = f" (refused: {refusal.reason})" if refusal else ""
        raise UsageError(f"unknown plugin {plugin!r}{why}", plugin=plugin)
    if command not in plan.commands:
        known = ", ".join(sorted(plan.commands))
        raise UsageError(f"plugin {plugin} has no command {command!r}; it has: {known}")


def enqueueing(
    blueprint: Blueprint, new: NewJob, *, id: str, now: datetime
) -> Callable[[Tx], jobs.Enqueued]:
    """The transaction that queues a job, or answers with the one that makes it needless."""
    if flaw := dedupe_key_flaw(new.dedupe_key):
        raise UsageError(f"dedupe_key {flaw}")
    ttl, snapshot_id = blueprint.settings.service.dedupe_ttl, blueprint.snapshot_id
    attempts = blueprint.chart.max_attempts(new.plugin, new.command)
    new = replace(new, max_attempts=attempts)
    if new.command == HANDLE:
        source = new.submitted_by.value
        event = Event(f"{source}.trigger", new.payload, new.dedupe_key, source, now, id)
        new = replace(new, payload=payload_column(HANDLE, event))
    return lambda tx: jobs.enqueue(tx, new, id=id, now=now, dedupe_ttl=ttl, snapshot_id=snapshot_id)
