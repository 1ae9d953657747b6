"""Work that does not get done: jobs, breakers, dead letters, schedules."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from ductile.clock import from_text, to_text
from ductile.core.jobs.commands import default_timeout
from ductile.engine.config.compiled import Blueprint
from ductile.operations import schedule_report, status
from ductile.operations.doctor.context import Patient
from ductile.operations.doctor.finding import Finding, error, warning

GRACE = 35.0
"""Seconds after its deadline in which a job is killed, cleared away and settled."""
LONG = timedelta(minutes=15)
RECENT = timedelta(days=7)
MOST = 1000
TOLD = 10


def jobs(patient: Patient) -> Iterator[Finding]:
    """Jobs that should have ended, and jobs that nobody runs."""
    if patient.rows is None:
        return
    rows = patient.rows.read(lambda tx: tx.dicts("running_jobs", limit=MOST))
    if rows and not patient.is_locked and patient.rows.engine == "sqlite":
        yield warning(
            "jobs",
            f"jobs that ran when the gateway ended: {len(rows)}",
            "it was killed; the next start counts their attempts as lost",
            patient.command("system start"),
        )
        return
    late = [row for row in rows if _is_late(row["started_at"], row, patient)]
    for row in late[:TOLD]:
        yield error(
            "jobs",
            f"job {row['job_id']} of {row['plugin']} {row['command']} runs far too long",
            f"since {row['started_at']}; its timeout and the time to kill it are over",
            patient.command(f"job cancel {row['job_id']}"),
        )


def _is_late(started_at: str | None, row: dict[str, str], patient: Patient) -> bool:
    if started_at is None:
        return False
    plan = patient.blueprint.plans.get(row["plugin"]) if patient.blueprint else None
    command = row["command"]
    timeout = plan.timeout(command) if plan else default_timeout(command)
    return patient.now - from_text(started_at) > timedelta(seconds=timeout + GRACE)


def waiting(patient: Patient) -> Iterator[Finding]:
    """Jobs that wait for a plugin that does not come, or for very long."""
    blueprint = patient.blueprint
    if patient.rows is None or blueprint is None:
        return
    counts: dict[str, int] = dict(patient.rows.read(lambda tx: tx.all("waiting_by_plugin")))
    heads = patient.rows.read(lambda tx: tx.dicts("oldest_ready"))
    for row in heads:
        plugin, since = row["plugin"], from_text(row["created_at"])
        jobs = f"jobs of {plugin} that wait: {counts.get(plugin, 1)}"
        why = _held(plugin, blueprint, patient)
        if why is not None:
            yield warning("jobs", jobs, why, patient.command(f"job list --plugin {plugin}"))
        elif plugin in patient.refused:
            why = f"the running gateway refuses the plugin: {patient.refused[plugin]}"
            yield warning("jobs", jobs, why, patient.command("system reload"))
        elif patient.ask is not None and patient.now - since > LONG:
            yield warning(
                "jobs",
                f"{jobs}, the first since {row['created_at']}",
                _busy(plugin, blueprint),
                patient.command("queue list"),
            )


def _held(plugin: str, blueprint: Blueprint, patient: Patient) -> str | None:
    if plugin in blueprint.held():
        refusal = blueprint.registry.refusal(plugin)
        return f"the plugin is refused: {refusal.reason if refusal else ''}"
    if plugin in patient.unready:
        return f"the plugin is not ready: {patient.unready[plugin]}"
    gone = blueprint.gone(plugin)
    return f"{gone}: they end at the next start or reload" if gone else None


def _busy(plugin: str, blueprint: Blueprint) -> str:
    cap = blueprint.caps.get(plugin)
    if cap is not None:
        return f"at most {cap} of them run at once (plugins.{plugin}.parallelism)"
    return "all workers are busy (service.max_workers)"


def breakers(patient: Patient) -> Iterator[Finding]:
    if patient.rows is None:
        return
    blueprint = patient.blueprint
    for row in patient.rows.read(lambda tx: status.tripped_breakers(tx, blueprint, MOST)):
        yield warning(
            "breakers",
            f"the breaker of {row['plugin']} {row['command']} is {row['state']}",
            f"{row['failure_count']} failures in a row; its schedules do not fire",
            patient.command(f"system breaker {row['plugin']}"),
        )


def dead_letters(patient: Patient) -> Iterator[Finding]:
    """Jobs and deliveries that were given up."""
    if patient.rows is None:
        return
    since = to_text(patient.now - RECENT)
    count = patient.rows.read(lambda tx: tx.all("dead_jobs_since", since=since, limit=MOST))[0][0]
    if count:
        many = f"{MOST} or more" if count >= MOST else count
        yield warning(
            "jobs",
            f"jobs that were given up in the last {RECENT.days} days: {many}",
            "their attempts were used up, or somebody cancelled them",
            patient.command("job list --status dead"),
        )
    yield from _given_up(patient, "webhook", "webhook deliveries --status dead")
    yield from _given_up(patient, "relay", "system relays --status dead")


def _given_up(patient: Patient, kind: str, run: str) -> Iterator[Finding]:
    assert patient.rows is not None
    count = patient.rows.read(lambda tx: tx.all(f"dead_{kind}_deliveries"))[0][0]
    if count:
        yield warning(
            "deliveries",
            f"{kind} deliveries that were given up: {count}",
            "the receiver did not take them, however often they were sent",
            patient.command(run),
        )


def schedules(patient: Patient) -> Iterator[Finding]:
    """Entries that are paused, cannot fire, or have not when they should."""
    blueprint = patient.blueprint
    if blueprint is None:
        return
    boot = _boot(patient)
    rows = schedule_report.listing(blueprint, patient.unready, patient.rows, patient.now, boot)
    for row in rows:
        name = f"{row['plugin']}/{row['schedule']}"
        if row["state"] == "paused":
            run = patient.command(f"schedule resume {name}")
            yield warning("schedules", f"schedule {name} is paused", "an operator paused it", run)
        elif row["state"] == "refused":
            run = patient.command("plugin list")
            yield error("schedules", f"schedule {name} cannot fire", row["reason"], run)
        elif row["state"].startswith("breaker_"):
            continue  # `breakers` tells of it
        elif boot is not None and row["next_run"] and _is_overdue(row, patient.now):
            yield error(
                "schedules",
                f"schedule {name} was due at {row['next_run']} and has not fired",
                row["reason"] or "the scheduler does not come to it",
                patient.command(f"schedule explain {name}"),
            )
        elif row["last_fire"] is None and row["state"] == "active" and _is_old(patient, row):
            yield warning(
                "schedules",
                f"schedule {name} has never fired",
                f"its rule is {row['rule']}; the next run is {row['next_run'] or 'never'}",
                patient.command(f"schedule explain {name}"),
            )


def _boot(patient: Patient) -> datetime | None:
    if patient.ask is None:
        return None
    # In whole seconds: what fired in the first of them has fired in this start.
    up = patient.health()["uptime_seconds"] + 1
    return patient.now - timedelta(seconds=up)


def _is_overdue(row: dict[str, str], now: datetime) -> bool:
    return from_text(row["next_run"]) < now - LONG


def _is_old(patient: Patient, row: dict[str, str]) -> bool:
    """Whether the entry has been known for long, with a gateway to fire it."""
    if patient.rows is None:
        return False
    entries = patient.rows.read(lambda tx: tx.dicts("entries"))
    seen = [
        from_text(entry["first_seen"])
        for entry in entries
        if (entry["plugin"], entry["schedule_id"]) == (row["plugin"], row["schedule"])
    ]
    return bool(seen) and patient.now - seen[0] > RECENT
