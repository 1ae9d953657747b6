"""Averages and exceeded limits of readings, relative to the newest reading.

A series maps the key of a reading to `[measured_at, date, value, revision]`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Series = Mapping[str, list[Any]]

MEASURED_AT, DATE, VALUE, REVISION = range(4)
DIGITS = 3


def get_newest(series: Series) -> list[Any]:
    """The newest reading; of two at the same time, the one with the greater value."""
    return max(series.values(), key=lambda point: (point[MEASURED_AT], point[VALUE]))


def get_average(series: Series, days: int, *, ago: int = 0) -> float | None:
    """The mean of daily means of `days` days, which end `ago` days before the newest reading."""
    last = _to_ordinal(get_newest(series)[DATE]) - ago
    by_day: dict[int, list[float]] = {}
    for point in series.values():
        day = _to_ordinal(point[DATE])
        if last - days < day <= last:
            by_day.setdefault(day, []).append(point[VALUE])
    if not by_day:
        return None
    means = [sum(values) / len(values) for values in by_day.values()]
    return round(sum(means) / len(means), DIGITS)


def get_change(series: Series, days: int) -> float | None:
    """The difference between the average and that of the `days` days before."""
    now, before = get_average(series, days), get_average(series, days, ago=days)
    return None if now is None or before is None else round(now - before, DIGITS)


def find_exceeded(
    series: Series, threshold: Mapping[str, Any], limits: Mapping[str, Any], window: int
) -> dict[str, tuple[float, float]]:
    """The limits that the newest reading exceeds: kind to (value, limit)."""
    value = get_newest(series)[VALUE]
    moved = get_change(series, int(limits.get("days", window)))
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


def summarize(series: Series, window: int) -> dict[str, Any]:
    """The statistics of one metric."""
    last = get_newest(series)
    day = _to_ordinal(last[DATE])
    recent = [p[VALUE] for p in series.values() if day - window < _to_ordinal(p[DATE]) <= day]
    return {
        "latest": last[VALUE],
        "date": last[DATE],
        "average": get_average(series, window),
        "change": get_change(series, window),
        "min": min(recent),
        "max": max(recent),
        "count": len(recent),
    }


def prune(series: Series, days: int, max_points: int) -> dict[str, list[Any]]:
    """The series limited to the last `days` days and to `max_points` points."""
    last = _to_ordinal(get_newest(series)[DATE])
    kept = sorted(
        (item for item in series.items() if _to_ordinal(item[1][DATE]) > last - days),
        key=lambda item: str(item[1][MEASURED_AT]),
    )
    return dict(kept[-max_points:])


def _to_ordinal(date: str) -> int:
    from datetime import date as calendar

    return calendar.fromisoformat(date).toordinal()
