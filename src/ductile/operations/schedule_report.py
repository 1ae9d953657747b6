"""Reports on schedules: next fires, what fired, and why an occurrence did not.

`boot` is the start of the running gateway; None if none runs, and then entries are read as a
gateway that started now would read them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from heapq import merge
from itertools import islice, takewhile
from typing import Any

from ductile.clock import from_text, to_text
from ductile.config.models.units import format_duration
from ductile.core.schedules import cron
from ductile.core.schedules.breaker import Breaker, blocked_until, describe_count
from ductile.core.schedules.breaker import State as BreakerState
from ductile.core.schedules.decide import (
    Anchors,
    Cron,
    Every,
    Monthly,
    Reason,
    Run,
    Schedule,
    due,
    nominal_due,
    preview,
)
from ductile.core.values.redact import hide_secret_keys
from ductile.core.values.suggest import list_or_suggest
from ductile.engine.config.compile_schedules import described
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import NotFound
from ductile.store import schedules
from ductile.store.breakers import load_breaker
from ductile.store.engines.api import Ledger, Tx

WHY = {
    Reason.RUNNING: "a poll of the plugin was queued or running",
    Reason.WINDOW: "outside its window",
    Reason.WEEKDAY: "not on this day of the week",
    Reason.BREAKER_OPEN: "the breaker was open",
    Reason.UNHEALTHY: "the plugin was not ready",
    Reason.CATCH_UP_SKIPPED: "missed, and not caught up",
    Reason.PAUSED: "an operator had paused it",
}
NO_GATEWAY = "no gateway was running"
MOST_OCCURRENCES = 10_000
"""Maximum number of occurrences of one entry that are explained, the newest."""
_DECIDED_WITHIN = timedelta(minutes=1)
"""Time after an occurrence within which its decision is expected."""


def find(compiled: CompiledConfig, name: str) -> list[Schedule]:
    """The entries of `plugin` or `pipeline:NAME`, or the one of `plugin/id`.

    The name of a pipeline is enough if no plugin of this name has entries.
    """
    owner, _, id = name.partition("/")
    entries = [entry for entry in compiled.schedules if id in ("", entry.id)]
    found = [entry for entry in entries if entry.plugin == owner] or [
        entry for entry in entries if entry.pipeline == owner
    ]
    if not found:
        names = sorted(_name(entry) for entry in compiled.schedules)
        raise NotFound(f"there is no schedule {name!r}; {list_or_suggest(name, names)}")
    return found


def _name(schedule: Schedule) -> str:
    return f"{schedule.plugin}/{schedule.id}"


class _History:
    """The stored state of the entries, read in one transaction; without a ledger it is empty."""

    def __init__(self, tx: Tx | None, now: datetime, boot: datetime | None) -> None:
        self._tx, self._now, self._boot = tx, now, boot

    def anchors(self, schedule: Schedule) -> Anchors:
        boot = self._boot or self._now
        if self._tx is None:
            return Anchors(first_seen=self._now, boot=boot)
        return schedules.preview_anchors(self._tx, schedule, boot, self._now)

    def breaker(self, schedule: Schedule) -> Breaker:
        if self._tx is None:
            return Breaker()
        return load_breaker(self._tx, schedule.plugin, schedule.command)

    def cause(self, breaker: Breaker) -> str:
        """The error of the newest job that counted, to append to a reason."""
        row = self._tx.one("job_error", id=breaker.last_job_id or "") if self._tx else None
        return f"; last error: {row[0]}" if row and row[0] else ""

    def has_outstanding(self, schedule: Schedule) -> bool:
        """Whether a job of the entry is queued or running."""
        if self._tx is None:
            return False
        if schedule.pipeline is not None:
            of_run = {"pipeline": schedule.pipeline, "schedule_id": schedule.id}
            return bool(self._tx.all("open_scheduled_runs", **of_run))
        key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
        return bool(self._tx.all("entry_outstanding", **key))

    def last_refusal(self, schedule: Schedule, anchors: Anchors) -> str | None:
        """Why the newest occurrence did not fire, if it is later than the last fire."""
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
        return f"its occurrence {slot} did not fire: {_describe_reason(reason, schedule)}"


def _describe_reason(reason: str, schedule: Schedule) -> str:
    if schedule.pipeline is not None and reason == Reason.RUNNING:
        return "an earlier run of the pipeline had not ended"
    return WHY.get(Reason(reason), reason)


def listing(
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    ledger: Ledger | None,
    now: datetime,
    boot: datetime | None = None,
) -> list[dict[str, Any]]:
    """Every entry: its rule, next run, last fire, last success, and what keeps it from firing."""

    def rows(tx: Tx | None) -> list[dict[str, Any]]:
        history = _History(tx, now, boot)
        return [_row(history, entry, compiled, unready, now) for entry in compiled.schedules]

    return ledger.read(rows) if ledger else rows(None)


def _row(
    history: _History,
    schedule: Schedule,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    now: datetime,
) -> dict[str, Any]:
    anchors, breaker = history.anchors(schedule), history.breaker(schedule)
    blocked_until = _blocked_until(breaker, schedule, compiled, now)
    state, why = _state(breaker, schedule, anchors, compiled, unready)
    if state.startswith("breaker_"):
        why = f"{why}{history.cause(breaker)}"
    if blocked_until is not None and state == "breaker_open":
        why = f"{why}; no scheduled run until {_local_time(schedule, blocked_until)}"
    idle = state in ("paused", "exhausted")
    next_run = None if idle else _next_run(schedule, anchors, now, blocked_until)
    if next_run is None and not idle and state not in ("refused", "unhealthy"):
        state, why = "never", "no time matches its rule and window, so it never fires"
    why = why or _closed_window(schedule, now) or history.last_refusal(schedule, anchors)
    return {
        "plugin": schedule.plugin,
        "schedule": schedule.id,
        "command": schedule.command,
        "pipeline": schedule.pipeline,
        "rule": described(schedule),
        "timezone": str(schedule.zone),
        "next_run": to_text(next_run) if next_run else None,
        "last_fire": to_text(anchors.last_fired_at) if anchors.last_fired_at else None,
        "last_success": to_text(anchors.last_success_at) if anchors.last_success_at else None,
        "state": state,
        "reason": why,
        "payload": hide_secret_keys(compiled.redactor.document(schedule.payload)),
    }


def _next_run(
    schedule: Schedule, anchors: Anchors, now: datetime, blocked_until: datetime | None
) -> datetime | None:
    """When the entry fires next, or should have: not while its breaker is open or its window is
    closed; a missed cron occurrence does not fire."""
    if blocked_until is None:
        overdue = due(schedule, anchors, now).fires
        if overdue:
            return overdue[0].due
    first = next(preview(schedule, anchors, now, 1, blocked_until), None)
    return first.due if first else None


def _blocked_until(
    breaker: Breaker, schedule: Schedule, compiled: CompiledConfig, now: datetime
) -> datetime | None:
    return blocked_until(breaker, now, compiled.tx_config.breaker(schedule.plugin))


def _closed_window(schedule: Schedule, now: datetime) -> str | None:
    """That the window is closed now, and until when."""
    window = schedule.window
    if window is None or window.contains(now):
        return None
    reason = Reason.WEEKDAY if window.bars_day(now) else Reason.WINDOW
    return f"{WHY[reason]} until {_local_time(schedule, window.next_start(now))}"


def _local_time(schedule: Schedule, moment: datetime) -> str:
    return moment.astimezone(schedule.zone).isoformat(sep=" ", timespec="seconds")


def _state(
    breaker: Breaker,
    schedule: Schedule,
    anchors: Anchors,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
) -> tuple[str, str | None]:
    plugin = schedule.plugin
    if anchors.exhausted:
        return "exhausted", "it fires once, and has fired"
    if anchors.paused:
        return "paused", "an operator paused it"
    if schedule.pipeline is not None:
        return "active", None
    if plugin not in compiled.plans:
        refusal = compiled.registry.refusal(plugin)
        return "refused", refusal.reason if refusal else "no such plugin"
    if plugin in unready:
        return "unhealthy", unready[plugin]
    # One that was opened before `circuit_breaker: off` holds nothing back.
    if breaker.state is not BreakerState.CLOSED and compiled.tx_config.breaker(plugin).threshold:
        return f"breaker_{breaker.state}", describe_count(breaker.failure_count)
    return "active", None


def next_fires(
    schedule: Schedule,
    compiled: CompiledConfig,
    ledger: Ledger | None,
    now: datetime,
    count: int,
    boot: datetime | None = None,
) -> Iterator[dict[str, Any]]:
    """The next `count` fires of an entry by what is known now, and which of the times are exact."""

    def work(tx: Tx | None) -> tuple[Anchors, Breaker, bool]:
        history = _History(tx, now, boot)
        return (
            history.anchors(schedule),
            history.breaker(schedule),
            history.has_outstanding(schedule),
        )

    anchors, breaker, outstanding = ledger.read(work) if ledger else work(None)
    until = _blocked_until(breaker, schedule, compiled, now)
    for place, run in enumerate(preview(schedule, anchors, now, count, until)):
        yield _fire(schedule, run, _uncertainty(schedule, breaker, place, outstanding))


def _uncertainty(schedule: Schedule, breaker: Breaker, place: int, outstanding: bool) -> str | None:
    """On what the time of the fire at this place depends; None if it is exact."""
    if breaker.state is BreakerState.HALF_OPEN or (
        breaker.state is BreakerState.OPEN and place > 0
    ):
        return "whether the probe of the breaker succeeds"
    if not isinstance(schedule.rule, Every | Monthly) or (place == 0 and not outstanding):
        return None
    spread = f", ±{format_duration(schedule.jitter / 2)}" if schedule.jitter else ""
    return f"the end of the previous run{spread}"


def next_fires_of_all(
    entries: list[Schedule],
    compiled: CompiledConfig,
    ledger: Ledger,
    now: datetime,
    count: int,
    boot: datetime | None = None,
) -> list[dict[str, Any]]:
    """The next `count` fires of all `entries` together."""
    each = [next_fires(entry, compiled, ledger, now, count, boot) for entry in entries]
    return list(islice(merge(*each, key=lambda fire: fire["fires_at"]), count))


def _fire(schedule: Schedule, run: Run, depends_on: str | None) -> dict[str, Any]:
    local = run.due.astimezone(schedule.zone)
    return {
        "schedule": _name(schedule),
        "fires_at": to_text(run.due),
        "local": local.isoformat(timespec="seconds"),
        "zone": f"{schedule.zone} ({local.tzname()})",
        "slot": to_text(run.slot),
        "exact": depends_on is None,
        "depends_on": depends_on,
    }


def explain(
    schedule: Schedule, ledger: Ledger, now: datetime, *, back: timedelta = timedelta(days=1)
) -> list[dict[str, Any]]:
    """Every occurrence of the last `back`, and every one decided in that time, with the reason if
    it did not fire; also one that waits for its window to open."""
    since = now - back

    def work(tx: Tx) -> tuple[list[dict[str, Any]], Anchors | None]:
        key = {"plugin": schedule.plugin, "schedule_id": schedule.id}
        rows = tx.dicts("slots_decided_since", since=to_text(since), **key)
        return rows[-MOST_OCCURRENCES:], schedules.preview_entry(tx, schedule, now, now)

    rows, anchors = ledger.read(work)
    explained = {row["slot"]: _explain_row(row, schedule) for row in rows}
    if anchors is not None:
        for slot in _undecided(schedule, anchors, since, now):
            explained.setdefault(
                slot, {**_BLANK, "slot": slot, "reason": "not_running", "why": NO_GATEWAY}
            )
        waiting = nominal_due(schedule, anchors, now)
        if waiting is not None and waiting >= since:
            slot = to_text(waiting)
            explained.setdefault(slot, _explain_waiting(schedule, slot, now))
    newest = sorted(explained)[-MOST_OCCURRENCES:]
    return [
        {"schedule": _name(schedule), **explained[slot], "local": _local(schedule, slot)}
        for slot in newest
    ]


_BLANK = {"fired": False, "job_id": None, "status": None, "decided_at": None}


def _explain_row(row: Mapping[str, Any], schedule: Schedule) -> dict[str, Any]:
    return {
        "slot": row["slot"],
        "fired": row["job_id"] is not None,
        "job_id": row["job_id"],
        "status": row["status"],
        "reason": row["reason"],
        "why": _describe_reason(row["reason"], schedule) if row["reason"] else None,
        "decided_at": row["created_at"],
    }


def _explain_waiting(schedule: Schedule, slot: str, now: datetime) -> dict[str, Any]:
    """An occurrence that fires when its window opens."""
    assert schedule.window is not None
    reason = Reason.WEEKDAY if schedule.window.bars_day(now) else Reason.WINDOW
    return {**_BLANK, "slot": slot, "reason": reason.value, "why": _closed_window(schedule, now)}


def _local(schedule: Schedule, slot: str) -> str:
    return from_text(slot).astimezone(schedule.zone).isoformat(timespec="seconds")


def _undecided(
    schedule: Schedule, anchors: Anchors, since: datetime, now: datetime
) -> Iterator[str]:
    """The occurrences of a cron rule in that time; other rules have only decided ones."""
    if not isinstance(schedule.rule, Cron):
        return
    latest = now - timedelta(seconds=schedule.jitter / 2) - _DECIDED_WITHIN
    slots = _cron_slots(schedule, schedule.rule, max(since, anchors.first_seen))
    for slot in islice(takewhile(lambda slot: slot < latest, slots), MOST_OCCURRENCES):
        yield to_text(slot)


def _cron_slots(schedule: Schedule, rule: Cron, after: datetime) -> Iterator[datetime]:
    slot = cron.next_after(rule.expr, after, schedule.zone)
    while slot is not None:
        yield slot
        slot = cron.next_after(rule.expr, slot, schedule.zone)
