"""Schedules for people: what comes next, what fired, and why something did not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import to_text
from ductile.core.schedule import Anchors, Schedule, next_due, preview
from ductile.errors import NotFound
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.timetable import described
from ductile.store import schedules
from ductile.store.ledger import Ledger, Tx


def find(blueprint: Blueprint, name: str) -> list[Schedule]:
    """The entries of `plugin`, or the one of `plugin/id`."""
    plugin, _, id = name.partition("/")
    found = [
        entry for entry in blueprint.schedules if entry.plugin == plugin and id in ("", entry.id)
    ]
    if not found:
        raise NotFound(f"there is no schedule {name!r}")
    return found


def _anchors(tx: Tx, schedule: Schedule, now: datetime) -> Anchors:
    return schedules.anchors_of(tx, schedule, now) or Anchors(first_seen=now, boot=now)


def listing(
    blueprint: Blueprint, unready: Mapping[str, str], ledger: Ledger | None, now: datetime
) -> list[dict[str, Any]]:
    """Every entry: its rule, its next run, its last fire and success, and what holds it."""

    def rows(tx: Tx | None) -> list[dict[str, Any]]:
        return [_row(tx, entry, blueprint, unready, now) for entry in blueprint.schedules]

    return ledger.read(rows) if ledger is not None else rows(None)


def _row(
    tx: Tx | None,
    schedule: Schedule,
    blueprint: Blueprint,
    unready: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    anchors = _anchors(tx, schedule, now) if tx else Anchors(first_seen=now, boot=now)
    due = next_due(schedule, anchors, now)
    state, why = _state(tx, schedule, anchors, blueprint, unready)
    return {
        "plugin": schedule.plugin,
        "schedule": schedule.id,
        "command": schedule.command,
        "rule": described(schedule),
        "timezone": str(schedule.zone),
        "next_run": to_text(due) if due and state not in ("paused", "exhausted") else None,
        "last_fire": to_text(anchors.last_fired_at) if anchors.last_fired_at else None,
        "last_success": to_text(anchors.last_success_at) if anchors.last_success_at else None,
        "state": state,
        "reason": why,
    }


def _state(
    tx: Tx | None,
    schedule: Schedule,
    anchors: Anchors,
    blueprint: Blueprint,
    unready: Mapping[str, str],
) -> tuple[str, str | None]:
    plugin = schedule.plugin
    if anchors.exhausted:
        return "exhausted", "it fires once, and has"
    if anchors.paused:
        return "paused", "an operator paused it"
    if plugin not in blueprint.plans:
        refusal = blueprint.registry.refusal(plugin)
        return "refused", refusal.reason if refusal else "no such plugin"
    if plugin in unready:
        return "unhealthy", unready[plugin]
    row = tx.one("breaker", plugin=plugin, command=schedule.command) if tx else None
    if row is not None and row[0] != "closed":
        return f"breaker_{row[0]}", f"{row[1]} failures in a row"
    return "active", None


def coming(
    schedule: Schedule, ledger: Ledger | None, now: datetime, count: int
) -> Iterator[dict[str, str]]:
    """The next fires, as the scheduler would make them if nothing held them."""
    fresh = Anchors(first_seen=now, boot=now)
    anchors = ledger.read(lambda tx: _anchors(tx, schedule, now)) if ledger else fresh
    for run in preview(schedule, anchors, now, count):
        yield {
            "schedule": f"{schedule.plugin}/{schedule.id}",
            "fires_at": to_text(run.due),
            "local": run.due.astimezone(schedule.zone).isoformat(),
            "slot": to_text(run.slot),
        }


def explain(
    schedule: Schedule, ledger: Ledger, now: datetime, *, back: timedelta = timedelta(days=1)
) -> list[dict[str, Any]]:
    """Every slot decided since, fired or not, and the reason when not."""
    since = to_text(now - back)
    rows = ledger.read(
        lambda tx: tx.dicts(
            "slots_since", plugin=schedule.plugin, schedule_id=schedule.id, since=since
        )
    )
    for row in rows:
        row["schedule"] = f"{schedule.plugin}/{schedule.id}"
        row["fired"] = row["job_id"] is not None
    return rows
