"""Compare a configuration on disk with the one in force, and what each means for the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from ductile.clock import to_text
from ductile.config import Loaded, find, load
from ductile.config.redact import redact_problems
from ductile.core.values.redact import Redactor
from ductile.engine.config import plugin_init
from ductile.engine.config.compiled import CompiledConfig, build
from ductile.engine.config.restart_required import build_reloadable, unreloadable
from ductile.engine.recovery.removed_plugins import list_snapshots_before_removal
from ductile.engine.services import Services
from ductile.errors import Problem, dotted
from ductile.operations.plan.access import compare_tokens, compare_webhooks
from ductile.operations.plan.fires import Key, PlannedEntry, compare_schedules
from ductile.operations.plan.graph import compare_graphs
from ductile.operations.plan.identity import identify_plan
from ductile.operations.plan.jobs import JobRules, QueuedGroup, compare_jobs
from ductile.operations.plan.plugins import compare_plugins, compare_secrets
from ductile.operations.plan.summary import compare_settings, make_relative, summarize
from ductile.operations.plan.watch import list_subjects
from ductile.store import nodes, schedules
from ductile.store.breakers import load_breaker
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import requeue

Document = dict[str, Any]
MAX_GROUPS = 1000
"""Maximum number of groups of queued jobs that are compared."""


def preview_reload(running: CompiledConfig, environ: Mapping[str, str]) -> Document:
    """What a reload would change; `ConfigError` with every problem if it would be refused."""
    fresh = load(running.loaded.path, environ=environ)
    built = build_reloadable(
        running.settings, fresh, lambda: build(fresh, boot_marker="", environ=environ)
    )
    return {"status": "ok", "dry_run": True, **summarize(running, built)}


def make_plan(services: Services, directory: Path | None = None) -> Document:
    """Everything that the files, or those in `directory`, would change; `ConfigError` if invalid.

    Only reads: the files, the plugins, and the ledger in read transactions.
    """
    running, environ = services.compiled, services.environ
    path = running.loaded.path if directory is None else find(directory, environ)
    built = build(load(path, environ=environ), boot_marker="", environ=environ)
    plan = compare_compiled(services, built)
    # What another directory contains is not put in force by a reload.
    id = identify_plan(services, built) if directory is None else None
    return {"id": id, **plan}


def compare_compiled(services: Services, built: CompiledConfig) -> Document:
    """Everything that differs between the configuration in force and another one, redacted."""
    running, now = services.compiled, services.clock.now()
    fresh = built.loaded
    old, new = running.settings, built.settings
    boot = services.started_at
    groups = services.ledger.read(list_queued_groups)
    plan: Document = {
        "config": str(fresh.path),
        "made_at": to_text(now),
        "restart": _list_restarts(running, fresh),
        "schedules": compare_schedules(
            read_entries(services.ledger, running, boot, now),
            read_entries(services.ledger, built, boot, now),
            now,
        ),
        "graph": compare_graphs(running, built),
        "plugins": compare_plugins(running, built),
        "webhooks": compare_webhooks(old, new),
        "tokens": compare_tokens(old, new),
        "secrets": compare_secrets(old, new),
        "settings": compare_settings(old, new),
        "jobs": compare_jobs(
            groups[:MAX_GROUPS],
            read_job_rules(services, running, services.unready),
            read_job_rules(services, built, plugin_init.uninitialised(services.ledger, built)),
        ),
        "jobs_left_out": len(groups) > MAX_GROUPS,
    }
    summary = summarize(running, built)
    changed = has_changes(plan) or any(map(has_changes, summary["changes"].values()))
    # A value that was public before may be a secret now, and the reverse.
    redactor = Redactor(running.loaded.secrets | built.loaded.secrets)
    watched = list_subjects(plan, summary["changes"])
    shown: Document = redactor.document({"changed": changed, **plan, **summary, "watched": watched})
    return shown


_FACTS = ("config", "made_at", "jobs_left_out")


def has_changes(plan: Mapping[str, Any]) -> bool:
    """Whether any group of a plan has an entry."""
    groups = [group for name, group in plan.items() if name not in _FACTS]
    return any(has_changes(group) if isinstance(group, dict) else group for group in groups)


def read_entries(
    ledger: Ledger, compiled: CompiledConfig, boot: datetime, now: datetime
) -> dict[Key, PlannedEntry]:
    """The entries of a configuration as the scheduler would continue them from `now` on."""

    def work(tx: Tx) -> dict[Key, PlannedEntry]:
        return {
            (entry.plugin, entry.id): PlannedEntry(
                schedule=entry,
                anchors=schedules.preview_anchors(tx, entry, boot, now),
                breaker=load_breaker(tx, entry.plugin, entry.command),
                policy=compiled.tx_config.breaker(entry.plugin),
                can_run=entry.pipeline is not None or entry.plugin in compiled.plans,
            )
            for entry in compiled.schedules
        }

    return ledger.read(work)


def list_queued_groups(tx: Tx) -> list[QueuedGroup]:
    """One more than `MAX_GROUPS` if there are more."""
    return [QueuedGroup(**row) for row in requeue.list_queued_groups(tx, MAX_GROUPS + 1)]


def read_job_rules(
    services: Services, compiled: CompiledConfig, unready: Mapping[str, str]
) -> JobRules:
    """What a configuration would do with the jobs that are queued now."""
    ledger = services.ledger
    queued = [row[0] for row in ledger.read(lambda tx: tx.all("queued_plugins"))]
    others = ledger.read(nodes.list_nodes)
    return JobRules(
        compiled=compiled,
        unready=unready,
        removed={
            plugin: snapshot_ids
            for plugin in queued
            if (snapshot_ids := list_snapshots_before_removal(ledger, compiled, plugin))
        },
        elsewhere=frozenset(
            plugin for row in others if row["boot"] != services.boot for plugin in row["plugins"]
        ),
    )


def _list_restarts(running: CompiledConfig, fresh: Loaded) -> list[Document]:
    """The settings that a reload refuses to change; relative paths count as unchanged."""
    old, new = running.settings, fresh.settings
    return [
        {
            "setting": dotted(problem.path),
            "before": problem.allowed,
            "after": problem.found,
            "message": problem.message,
        }
        for problem in redact_problems(unreloadable(old, fresh), fresh.secrets)
        if _differs(problem, make_relative(problem.allowed, old), make_relative(problem.found, new))
    ]


def _differs(problem: Problem, before: object, after: object) -> bool:
    # Databases are described by words here, not by their URLs.
    return problem.path == ("state", "url") or before != after
