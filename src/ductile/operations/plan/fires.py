"""The schedules that two configurations differ in, and the fires that appear and disappear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.schedules.breaker import Breaker, BreakerPolicy, blocked_until
from ductile.core.schedules.decide import Anchors, Every, Monthly, Schedule, preview
from ductile.engine.config.compile_schedules import described

HORIZON = timedelta(days=7)
MOST_FIRES, ALL_FIRES, FEWEST_FIRES = 10_100, 100_000, 20
"""Maximum number of fires that are compared, the next ones: of one entry (those of a week of
minutes), and of all that differ; of each at least the last."""
SHOWN_FIRES = 20
Key = tuple[str, str]
"""The plugin and the id of an entry."""


@dataclass(frozen=True, slots=True)
class PlannedEntry:
    """An entry in one configuration, and what decides when it fires."""

    schedule: Schedule
    anchors: Anchors
    breaker: Breaker
    policy: BreakerPolicy
    can_run: bool
    """Whether its plugin is loaded."""


@dataclass(frozen=True, slots=True)
class FireTimes:
    times: tuple[datetime, ...]
    until: datetime
    """The times are complete before this moment."""


@dataclass(frozen=True, slots=True)
class FireDifference:
    appear: tuple[datetime, ...]
    disappear: tuple[datetime, ...]
    until: datetime


def fire_times(entry: PlannedEntry | None, now: datetime, most: int = MOST_FIRES) -> FireTimes:
    """When the entry fires before the horizon, if each of its jobs ends at once."""
    until = now + HORIZON
    if entry is None or not entry.can_run:
        return FireTimes((), until)
    blocked = blocked_until(entry.breaker, now, entry.policy)
    times: list[datetime] = []
    for run in preview(entry.schedule, entry.anchors, now, most + 1, blocked):
        if run.due >= until:
            break
        if len(times) == most:
            return FireTimes(tuple(times), run.due)
        times.append(run.due)
    return FireTimes(tuple(times), until)


def compare_fires(
    before: PlannedEntry | None, after: PlannedEntry | None, now: datetime, most: int
) -> FireDifference:
    old, new = fire_times(before, now, most), fire_times(after, now, most)
    until = min(old.until, new.until)
    was = {moment for moment in old.times if moment < until}
    will = {moment for moment in new.times if moment < until}
    return FireDifference(tuple(sorted(will - was)), tuple(sorted(was - will)), until)


def compare_schedules(
    old: Mapping[Key, PlannedEntry], new: Mapping[Key, PlannedEntry], now: datetime
) -> list[dict[str, Any]]:
    """The entries that differ in their settings or in their fires."""
    found = []
    differing = [key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)]
    most = max(FEWEST_FIRES, min(MOST_FIRES, ALL_FIRES // max(1, len(differing))))
    for key in differing:
        before, after = old.get(key), new.get(key)
        changed = _changed_fields(before, after)
        fires = compare_fires(before, after, now, most)
        if changed or fires.appear or fires.disappear:
            found.append(_describe(key, before, after, changed, fires))
    return found


def _describe(
    key: Key,
    before: PlannedEntry | None,
    after: PlannedEntry | None,
    changed: Sequence[str],
    fires: FireDifference,
) -> dict[str, Any]:
    change = "added" if before is None else "removed" if after is None else "changed"
    shown = after or before
    assert shown is not None
    return {
        "schedule": "/".join(key),
        "change": change,
        "fields": list(changed) if change == "changed" else [],
        "before": before and _rule(before.schedule),
        "after": after and _rule(after.schedule),
        "paused": shown.anchors.paused,
        "appear": _list_fires(shown.schedule, fires.appear),
        "disappear": _list_fires((before or shown).schedule, fires.disappear),
        "compared_until": to_text(fires.until),
        "exact": not any(_depends_on_jobs(entry) for entry in (before, after)),
    }


def _rule(schedule: Schedule) -> str:
    return f"{described(schedule)} ({schedule.zone})"


def _depends_on_jobs(entry: PlannedEntry | None) -> bool:
    """Whether the end of each job moves the following fires."""
    return entry is not None and isinstance(entry.schedule.rule, Every | Monthly)


def _list_fires(schedule: Schedule, times: Sequence[datetime]) -> dict[str, Any]:
    return {
        "count": len(times),
        "first": [
            {
                "fires_at": to_text(moment),
                "local": moment.astimezone(schedule.zone).isoformat(timespec="seconds"),
            }
            for moment in times[:SHOWN_FIRES]
        ],
    }


_FIELDS = (
    "rule",
    "zone",
    "command",
    "payload",
    "jitter",
    "window",
    "catch_up",
    "if_running",
    "priority",
)


def _changed_fields(before: PlannedEntry | None, after: PlannedEntry | None) -> list[str]:
    if before is None or after is None:
        return ["rule"]
    old, new = before.schedule, after.schedule
    fields = [name for name in _FIELDS if getattr(old, name) != getattr(new, name)]
    return ["timezone" if name == "zone" else name for name in fields]
