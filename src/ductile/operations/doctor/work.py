"""Checks of jobs, breakers, dead letters and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from shlex import quote

from ductile.clock import from_text
from ductile.core.jobs.commands import default_timeout
from ductile.engine.config.compiled import CompiledConfig
from ductile.model import JobStatus
from ductile.operations import schedule_report
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.operations.reports import plugin_list
from ductile.operations.reports.failures import list_failures
from ductile.store.flow.pauses import load_pauses

GRACE = 35.0
"""Seconds after its deadline in which a job is killed and settled."""
LONG = timedelta(minutes=15)
RECENT = timedelta(days=7)
MOST = 1000
MAX_SHOWN = 10


def jobs(context: DoctorContext) -> Iterator[Finding]:
    """Jobs that should have ended, and jobs without a gateway that runs them."""
    if context.rows is None:
        return
    rows = context.rows.read(lambda tx: tx.dicts("running_jobs", limit=MOST))
    if rows and not context.is_locked and context.rows.engine == "sqlite":
        yield warning(
            "jobs",
            f"jobs that were running when the gateway died: {len(rows)}",
            "the next start counts their attempts as lost",
            context.command("system start"),
        )
        return
    late = [row for row in rows if _is_late(row["started_at"], row, context)]
    for row in late[:MAX_SHOWN]:
        yield error(
            "jobs",
            f"job {row['job_id']} of {row['plugin']} {row['command']} has exceeded its timeout",
            f"it started at {row['started_at']} and should have been killed by now",
            context.command(f"job cancel {row['job_id']}"),
        )


def _is_late(started_at: str | None, row: dict[str, str], context: DoctorContext) -> bool:
    if started_at is None:
        return False
    plan = context.compiled.plans.get(row["plugin"]) if context.compiled else None
    command = row["command"]
    timeout = plan.timeout(command) if plan else default_timeout(command)
    return context.now - from_text(started_at) > timedelta(seconds=timeout + GRACE)


def waiting(context: DoctorContext) -> Iterator[Finding]:
    """Jobs of plugins that cannot run, and jobs that have been queued for long."""
    compiled = context.compiled
    if context.rows is None or compiled is None:
        return
    counts: dict[str, int] = dict(context.rows.read(lambda tx: tx.all("ready_by_plugin")))
    heads = context.rows.read(lambda tx: tx.dicts("oldest_ready"))
    for row in heads:
        plugin, since = row["plugin"], from_text(row["created_at"])
        jobs = f"queued jobs of {plugin}: {counts.get(plugin, 1)}"
        why = _held(plugin, compiled, context)
        if why is not None:
            yield warning("jobs", jobs, why, context.command(f"job list --plugin {quote(plugin)}"))
        elif plugin in context.refused:
            why = f"the running gateway refuses the plugin: {context.refused[plugin]}"
            yield warning("jobs", jobs, why, context.command("system reload"))
        elif context.ask is not None and context.now - since > LONG:
            yield warning(
                "jobs",
                f"{jobs}, the oldest since {row['created_at']}",
                _busy(plugin, compiled),
                context.command("queue list"),
            )


def pauses(context: DoctorContext) -> Iterator[Finding]:
    """What an operator has paused: its jobs stay queued."""
    if context.rows is None:
        return
    now = context.now
    found = context.rows.read(lambda tx: load_pauses(tx, now))
    every = [found.system, *found.plugins.values(), *found.pipelines.values()]
    for pause in [each for each in every if each is not None][:MAX_SHOWN]:
        name = f" {quote(pause.name)}" if pause.name else ""
        run = context.command(f"{pause.kind} resume{name}")
        yield warning("jobs", pause.describe().partition(";")[0], "its jobs stay queued", run)


def _held(plugin: str, compiled: CompiledConfig, context: DoctorContext) -> str | None:
    if plugin in compiled.held():
        refusal = compiled.registry.refusal(plugin)
        return f"the plugin is refused: {refusal.reason if refusal else ''}"
    if plugin in context.unready:
        return f"the plugin is not ready: {context.unready[plugin]}"
    if absence := compiled.absence(plugin):
        return f"{absence}; they wait until it returns"
    gone = compiled.gone(plugin)
    return f"{gone}: they end at the next start or reload" if gone else None


def _busy(plugin: str, compiled: CompiledConfig) -> str:
    cap = compiled.caps.get(plugin)
    if cap is not None:
        return f"at most {cap} of them run at a time (plugins.{plugin}.parallelism)"
    return "all workers are busy (service.max_workers)"


def breakers(context: DoctorContext) -> Iterator[Finding]:
    if context.rows is None:
        return
    compiled = context.compiled
    for row in context.rows.read(lambda tx: plugin_list.tripped_breakers(tx, compiled, MOST)):
        yield warning(
            "breakers",
            f"the breaker of {row['plugin']} {row['command']} is {row['state']}",
            f"{plugin_list.describe_breaker(row)}; its schedules do not fire",
            context.command(f"plugin reset-breaker {quote(row['plugin'])}"),
        )


def dead_letters(context: DoctorContext) -> Iterator[Finding]:
    """Dead jobs and deliveries."""
    if context.rows is None:
        return
    found = context.rows.read(lambda tx: list_failures(tx, context.now))["failures"]
    dead = [row for row in found if row["status"] == JobStatus.DEAD]
    for row in dead[:MAX_SHOWN]:
        kind = f"--plugin {quote(row['plugin'])} --command {quote(row['command'])}"
        many = f"job list --status dead {kind} --not-acknowledged"
        yield warning(
            "jobs",
            f"dead jobs of {row['plugin']} {row['command']}: {row['jobs']}",
            row["last_error"] or "their attempts are used up",
            context.command(f"job why {row['job_id']}" if row["jobs"] == 1 else many),
        )
    yield from _dead_deliveries(context, "webhook", "webhook deliveries --status dead")
    yield from _dead_deliveries(context, "relay", "relay list --status dead")


def _dead_deliveries(context: DoctorContext, kind: str, run: str) -> Iterator[Finding]:
    assert context.rows is not None
    count = context.rows.read(lambda tx: tx.all(f"dead_{kind}_deliveries"))[0][0]
    if count:
        yield warning(
            "deliveries",
            f"dead {kind} deliveries: {count}",
            "the receiver did not accept them in any attempt",
            context.command(run),
        )


def schedules(context: DoctorContext) -> Iterator[Finding]:
    """Entries that are paused, cannot fire, or did not fire when due."""
    compiled = context.compiled
    if compiled is None:
        return
    boot = _boot(context)
    rows = schedule_report.listing(compiled, context.unready, context.rows, context.now, boot)
    for row in rows:
        name = f"{row['plugin']}/{row['schedule']}"
        if row["state"] == "paused":
            run = context.command(f"schedule resume {name}")
            yield warning("schedules", f"schedule {name} is paused", "an operator paused it", run)
        elif row["state"] == "refused":
            run = context.command("plugin list")
            yield error("schedules", f"schedule {name} cannot fire", row["reason"], run)
        elif row["state"] == "never":
            run = context.command(f"schedule next {name}")
            yield error("schedules", f"schedule {name} never fires", row["reason"], run)
        elif row["state"].startswith("breaker_"):
            continue  # `breakers` reports it
        elif boot is not None and row["next_run"] and _is_overdue(row, context.now):
            yield error(
                "schedules",
                f"schedule {name} was due at {row['next_run']} and has not fired",
                row["reason"] or "the scheduler is late",
                context.command(f"schedule explain {name}"),
            )
        elif row["last_fire"] is None and row["state"] == "active" and _is_old(context, row):
            yield warning(
                "schedules",
                f"schedule {name} has never fired",
                f"its rule is {row['rule']}; the next run is {row['next_run'] or 'never'}",
                context.command(f"schedule explain {name}"),
            )


def _boot(context: DoctorContext) -> datetime | None:
    if context.ask is None:
        return None
    # Uptime is in whole seconds; a fire in the first one belongs to this start.
    up = context.health()["uptime_seconds"] + 1
    return context.now - timedelta(seconds=up)


def _is_overdue(row: dict[str, str], now: datetime) -> bool:
    return from_text(row["next_run"]) < now - LONG


def _is_old(context: DoctorContext, row: dict[str, str]) -> bool:
    """Whether a gateway has known the entry for more than a week."""
    if context.rows is None:
        return False
    entries = context.rows.read(lambda tx: tx.dicts("entries"))
    seen = [
        from_text(entry["first_seen"])
        for entry in entries
        if (entry["plugin"], entry["schedule_id"]) == (row["plugin"], row["schedule"])
    ]
    return bool(seen) and context.now - seen[0] > RECENT
