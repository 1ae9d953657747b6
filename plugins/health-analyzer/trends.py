"""Readings in, averages and breached limits out: pure, and without a clock.

What counts as now is the newest reading. A series is a mapping of a reading's key to
`[measured_at, date, value, revision]`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Series = Mapping[str, list[Any]]

MEASURED_AT, DATE, VALUE, REVISION = range(4)
DIGITS = 3


def newest(series: Series) -> list[Any]:
    """The reading that was taken last; of two at once, the one with the greater value."""
    return max(series.values(), key=lambda point: (point[MEASURED_AT], point[VALUE]))


def average(series: Series, days: int, *, ago: int = 0) -> float | None:
    """The mean of the daily means over `days`, the last of them `ago` days before the newest."""
    last = _day(newest(series)[DATE]) - ago
    by_day: dict[int, list[float]] = {}
    for point in series.values():
        day = _day(point[DATE])
        if last - days < day <= last:
            by_day.setdefault(day, []).append(point[VALUE])
    if not by_day:
        return None
    means = [sum(values) / len(values) for values in by_day.values()]
    return round(sum(means) / len(means), DIGITS)


def change(series: Series, days: int) -> float | None:
    """How the average has moved against that of the `days` before."""
    now, before = average(series, days), average(series, days, ago=days)
    return None if now is None or before is None else round(now - before, DIGITS)


def breaches(
    series: Series, threshold: Mapping[str, Any], limits: Mapping[str, Any], window: int
) -> dict[str, tuple[float, float]]:
    """Which limits the newest reading breaks: kind to (value, limit)."""
    value = newest(series)[VALUE]
    moved = change(series, int(limits.get("days", window)))
    found: dict[str, tuple[float, float]] = {}
    if "max" in threshold and value > threshold["max"]:
        found["above"] = (value, threshold["max"])
    if "min" in threshold and value < threshold["min"]:
        found["below"] = (value, threshold["min"])
    if "up" in limits and moved is not None and moved > limits["up"]:
        found["rising"] = (moved, limits["up"])
    if "down" in limits and moved is not None and -moved > limits["down"]:
        found["falling"] = (moved, limits["down"])
    return found


def summary(series: Series, window: int) -> dict[str, Any]:
    """What can be said of one metric."""
    last = newest(series)
    day = _day(last[DATE])
    recent = [p[VALUE] for p in series.values() if day - window < _day(p[DATE]) <= day]
    return {
        "latest": last[VALUE],
        "date": last[DATE],
        "average": average(series, window),
        "change": change(series, window),
        "min": min(recent),
        "max": max(recent),
        "count": len(recent),
    }


def pruned(series: Series, days: int, most: int) -> dict[str, list[Any]]:
    """The series without what is older than so many days, and no longer than `most`."""
    last = _day(newest(series)[DATE])
    kept = sorted(
        (item for item in series.items() if _day(item[1][DATE]) > last - days),
        key=lambda item: str(item[1][MEASURED_AT]),
    )
    return dict(kept[-most:])


def _day(date: str) -> int:
    from datetime import date as calendar

    return calendar.fromisoformat(date).toordinal()
