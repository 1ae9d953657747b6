"""Schedules for people: what comes next, what fired, and why something did not.

`boot` is when the gateway that answers began; None where none runs, and then entries are read
as a gateway that started now would read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from ductile.clock import from_text, to_text
from ductile.core.schedules import cron
from ductile.core.schedules.decide import (
    Anchors,
    Cron,
    Reason,
    Run,
    Schedule,
    due,
    next_due,
    preview,
)
from ductile.engine.config.compile_schedules import described
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import NotFound
from ductile.store import schedules
from ductile.store.engines.api import Ledger, Tx

Key = tuple[str, str]

WHY = {
    Reason.RUNNING: "its last run had not ended",
    Reason.WINDOW: "outside its window",
    Reason.WEEKDAY: "not on this day of the week",
    Reason.BREAKER_OPEN: "the breaker was open",
    Reason.UNHEALTHY: "the plugin was not ready",
    Reason.CATCH_UP_SKIPPED: "missed, and not caught up on",
    Reason.PAUSED: "an operator had paused it",
}
NOBODY = "no gateway was running"
SLOTS_TOLD = 10_000
"""The most slots of one entry that are explained, the newest."""
_DECIDED_WITHIN = timedelta(minutes=1)
"""How long after a slot the decision against it is looked for."""


def find(compiled: CompiledConfig, name: str) -> list[Schedule]:
    """The entries of `plugin`, or the one of `plugin/id`."""
    plugin, _, id = name.partition("/")
    found = [
        entry for entry in compiled.schedules if entry.plugin == plugin and id in ("", entry.id)
    ]
    if not found:
        known = ", ".join(sorted(_name(entry) for entry in compiled.schedules)) or "none"
        raise NotFound(f"there is no schedule {name!r}; there are: {known}")
    return found


def _name(schedule: Schedule) -> str:
    return f"{schedule.plugin}/{schedule.id}"


class _Memory:
    """What the ledger, if there is one, remembers of the entries; in one transaction."""

    def __init__(self, tx: Tx | None, now: datetime, boot: datetime | None) -> None:
        self._tx, self._now, self._boot = tx, now, boot
        breakers = tx.dicts("breakers", plugin=None) if tx else []
        self.breakers: dict[Key, dict[str, Any]] = {
            (row["plugin"], row["command"]): row for row in breakers
        }

    def anchors(self, schedule: Schedule) -> Anchors:
        boot = self._boot or self._now
        known = schedules.remembered(self._tx, schedule, boot, self._now) if self._tx else None
        return known or Anchors(first_seen=self._now, boot=boot)

    def last_refusal(self, schedule: Schedule, anchors: Anchors) -> str | None:
        """Why the newest slot did not fire, where that came after the last fire."""
        if self._tx is None:
            return None
        key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
        row = self._tx.one("newest_slot", **key)
        if row is None:
            return None
        slot, reason, decided_at = row
        fired = anchors.last_fired_at
        if reason is None or (fired is not None and from_text(decided_at) <= fired):
            return None
        return f"its slot {slot} did not fire: {_words(reason)}"


def _words(reason: str) -> str:
    return WHY.get(Reason(reason), reason)


def listing(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    ledger: Ledger | None,
    now: datetime,
    boot: datetime | None = None,
) -> list[dict[str, Any]]:
    """Every entry: its rule, its next run, its last fire and success, and what holds it."""

    def rows(tx: Tx | None) -> list[dict[str, Any]]:
        memory = _Memory(tx, now, boot)
        return [_row(memory, entry, compiled, unready, now) for entry in compiled.schedules]

    return ledger.read(rows) if ledger else rows(None)


def _row(
    memory: _Memory,
    schedule: Schedule,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    anchors = memory.anchors(schedule)
    state, why = _state(memory, schedule, anchors, compiled, unready)
    idle = state in ("paused", "exhausted")
    next_run = None if idle else _next_run(schedule, anchors, now)
    return {
        "plugin": schedule.plugin,
        "schedule": schedule.id,
        "command": schedule.command,
        "rule": described(schedule),
        "timezone": str(schedule.zone),
        "next_run": to_text(next_run) if next_run else None,
        "last_fire": to_text(anchors.last_fired_at) if anchors.last_fired_at else None,
        "last_success": to_text(anchors.last_success_at) if anchors.last_success_at else None,
        "state": state,
        "reason": why or memory.last_refusal(schedule, anchors),
    }


def _next_run(schedule: Schedule, anchors: Anchors, now: datetime) -> datetime | None:
    """When it will fire or should have; a slot of cron that is missed will not."""
    if isinstance(schedule.rule, Cron):
        decision = due(schedule, anchors, now)
        if not decision.fires:
            anchors = decision.anchors
    return next_due(schedule, anchors, now)


def _state(
    memory: _Memory,
    schedule: Schedule,
    anchors: Anchors,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
) -> tuple[str, str | None]:
    plugin = schedule.plugin
    if anchors.exhausted:
        return "exhausted", "it fires once, and has"
    if anchors.paused:
        return "paused", "an operator paused it"
    if plugin not in compiled.plans:
        refusal = compiled.registry.refusal(plugin)
        return "refused", refusal.reason if refusal else "no such plugin"
    if plugin in unready:
        return "unhealthy", unready[plugin]
    breaker = memory.breakers.get((plugin, schedule.command))
    if breaker is not None and breaker["state"] != "closed":
        return f"breaker_{breaker['state']}", f"{breaker['failure_count']} failures in a row"
    return "active", None


def coming(
    schedule: Schedule,
    ledger: Ledger | None,
    now: datetime,
    count: int,
    boot: datetime | None = None,
) -> Iterator[dict[str, str]]:
    """The next `count` fires of an entry, as they will be if nothing holds them."""

    def work(tx: Tx | None) -> Anchors:
        return _Memory(tx, now, boot).anchors(schedule)

    anchors = ledger.read(work) if ledger else work(None)
    return (_fire(schedule, run) for run in preview(schedule, anchors, now, count))


def soonest(
    entries: list[Schedule],
    ledger: Ledger,
    now: datetime,
    count: int,
    boot: datetime | None = None,
) -> list[dict[str, str]]:
    """The next `count` fires of all `entries` together."""
    each = [coming(entry, ledger, now, count, boot) for entry in entries]
    return list(islice(merge(*each, key=lambda fire: fire["fires_at"]), count))


def _fire(schedule: Schedule, run: Run) -> dict[str, str]:
    local = run.due.astimezone(schedule.zone)
    return {
        "schedule": _name(schedule),
        "fires_at": to_text(run.due),
        "local": local.isoformat(timespec="seconds"),
        "zone": f"{schedule.zone} ({local.tzname()})",
        "slot": to_text(run.slot),
    }


def explain(
    schedule: Schedule, ledger: Ledger, now: datetime, *, back: timedelta = timedelta(days=1)
) -> list[dict[str, Any]]:
    """Every slot of the time `back` from now, and every one decided in it: fired or not, and
    the reason when not."""
    since = now - back

    def work(tx: Tx) -> tuple[list[dict[str, Any]], Anchors | None]:
        key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
        rows = tx.dicts("slots_told_since", since=to_text(since), **key)
        return rows[-SLOTS_TOLD:], schedules.remembered(tx, schedule, now, now)

    rows, anchors = ledger.read(work)
    told = {row["slot"]: _told(row) for row in rows}
    if anchors is not None:
        for slot in _undecided(schedule, anchors, since, now):
            told.setdefault(slot, {**_BLANK, "slot": slot, "reason": "not_running", "why": NOBODY})
    newest = sorted(told)[-SLOTS_TOLD:]
    return [
        {"schedule": _name(schedule), **told[slot], "local": _local(schedule, slot)}
        for slot in newest
    ]


_BLANK = {"fired": False, "job_id": None, "status": None, "decided_at": None}


def _told(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "slot": row["slot"],
        "fired": row["job_id"] is not None,
        "job_id": row["job_id"],
        "status": row["status"],
        "reason": row["reason"],
        "why": _words(row["reason"]) if row["reason"] else None,
        "decided_at": row["created_at"],
    }


def _local(schedule: Schedule, slot: str) -> str:
    return from_text(slot).astimezone(schedule.zone).isoformat(timespec="seconds")


def _undecided(
    schedule: Schedule, anchors: Anchors, since: datetime, now: datetime
) -> Iterator[str]:
    """The slots of a cron rule between; other rules have none but those that were decided."""
    if not isinstance(schedule.rule, Cron):
        return
    latest = now - timedelta(seconds=schedule.jitter / 2) - _DECIDED_WITHIN
    slots = _cron_slots(schedule, schedule.rule, max(since, anchors.first_seen))
    for slot in islice(takewhile(lambda slot: slot < latest, slots), SLOTS_TOLD):
        yield to_text(slot)


def _cron_slots(schedule: Schedule, rule: Cron, after: datetime) -> Iterator[datetime]:
    slot = cron.next_after(rule.expr, after, schedule.zone)
    while slot is not None:
        yield slot
        slot = cron.next_after(rule.expr, slot, schedule.zone)
