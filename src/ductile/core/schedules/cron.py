"""Five-field cron in IANA time zones, with the rules of Debian's cron.

A rule whose minute and hour are both fixed belongs to the wall clock: a time that a spring
gap leaves out fires once at the gap's end (together with all others that it left out), one
that autumn repeats fires at its first occurrence only. A rule whose minute or hour begins
with `*` belongs to elapsed time: it fires whenever the clock shows a matching time, so
twice in a repeated hour and not at all in one that is left out.

cronsim finds matching wall times; this module converts them to instants, because cronsim's own
conversion misses wall times around half-hour shifts and returns repeated ones before the
requested moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_FIELDS = (
    ("minute", "0-59"),
    ("hour", "0-23"),
    ("day-of-month", "1-31, L (last day), LW (last weekday)"),
    ("month", "1-12 or JAN-DEC"),
    ("day-of-week", "0-7 (0 and 7 are Sunday) or SUN-SAT, 5L (last Friday), 5#2 (second Friday)"),
)
_ANY_DAY = datetime(2000, 1, 1)  # noqa: DTZ001
_SECOND = timedelta(seconds=1)
_FEW = 16
"""Instants that are searched forwards before a backward search."""
_DAY = timedelta(days=1)
_HORIZON_YEARS = 50


def parse(expr: str) -> str:
    """The rule with single spaces; ValueError names the wrong field and its allowed values.

    A rule that can never match (`0 0 30 2 *`) is well formed: see `comes`.
    """
    fields = expr.split()
    if len(fields) != len(_FIELDS):
        names = " ".join(name for name, _ in _FIELDS)
        raise ValueError(f"cron {expr!r} has {len(fields)} fields; it must have 5 ({names})")
    for place, ((name, allowed), field) in enumerate(zip(_FIELDS, fields, strict=True)):
        alone = ["*"] * len(_FIELDS)
        alone[place] = field
        try:
            CronSim(" ".join(alone), _ANY_DAY)
        except (CronSimError, ValueError):
            raise ValueError(
                f"cron {expr!r}: {name} cannot be {field!r}; allowed: {allowed}, "
                "*, lists (1,2), rising ranges (1-5), steps (*/5, 1-9/2)"
            ) from None
    return " ".join(fields)


def has_match(expr: str) -> bool:
    """Whether any date matches: `0 0 30 2 *` never does."""
    return next(_matches(expr, _ANY_DAY), None) is not None


def next_after(expr: str, moment: datetime, zone: ZoneInfo) -> datetime | None:
    """The rule's first instant strictly later than `moment`, in UTC.

    None if there is none within 50 years. `expr` has passed `parse`.
    """
    minute, hour = expr.split()[:2]
    follows_elapsed_time = minute.startswith("*") or hour.startswith("*")
    search = _next_elapsed if follows_elapsed_time else _next_fixed
    try:
        return search(expr, moment, zone)
    except OverflowError:
        return None


def newest(
    expr: str, after: datetime, until: datetime, zone: ZoneInfo, most: int
) -> list[datetime]:
    """The rule's instants later than `after` and not than `until`: the newest, `most` of them.

    A few less if clocks were set forward between them.
    """
    few = list(islice(_instants(expr, after, until, zone), _FEW + 1))
    if len(few) <= min(_FEW, most):
        return few  # as nearly always: to search backwards visits a day of `* * * * *`
    floor = wall_time(after, zone) - _DAY
    walls = _matches(expr, wall_time(until, zone), backwards=True)
    behind = deque(islice(takewhile(lambda wall: wall > floor, walls), most), maxlen=1)
    start = max(after, instant(behind[0], zone) - _SECOND) if behind else after
    return list(deque(_instants(expr, start, until, zone), maxlen=most))


def _instants(expr: str, after: datetime, until: datetime, zone: ZoneInfo) -> Iterator[datetime]:
    while (slot := next_after(expr, after, zone)) is not None and slot <= until:
        yield slot
        after = slot


def instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """When clocks in `zone` show the naive `wall`: its first occurrence, or its gap's end."""
    first = wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    second = wall.replace(tzinfo=zone, fold=1).astimezone(UTC)
    return first if first <= second else first_shift(zone, second, first)


def first_shift(zone: ZoneInfo, after: datetime, until: datetime) -> datetime:
    """The instant in (`after`, `until`] at which the zone's offset changes.

    The two ends have different offsets, and only one shift lies between them.
    """
    before = offset(after, zone)
    low, high = int(after.timestamp()), int(until.timestamp())
    while high - low > 1:
        middle = (low + high) // 2
        if offset(datetime.fromtimestamp(middle, UTC), zone) == before:
            low = middle
        else:
            high = middle
    return datetime.fromtimestamp(high, UTC)


def offset(moment: datetime, zone: ZoneInfo) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta()


def wall_time(moment: datetime, zone: ZoneInfo) -> datetime:
    """What clocks in `zone` show at `moment`, naive."""
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


def _matches(expr: str, wall: datetime, *, backwards: bool = False) -> Iterator[datetime]:
    """Matching wall times from `wall` on, as if no clock were ever shifted."""
    try:
        yield from CronSim(expr, wall, backwards)
    except CronSimError:
        return  # cronsim raises this for a date that no month has


def _next_fixed(expr: str, moment: datetime, zone: ZoneInfo) -> datetime | None:
    fires = (instant(wall, zone) for wall in _matches(expr, wall_time(moment, zone)))
    return next((fire for fire in fires if fire > moment), None)


def _next_elapsed(expr: str, moment: datetime, zone: ZoneInfo) -> datetime | None:
    """Search with the offset of `base`, at most one day at a time: a later shift cannot repeat wall
    times of the day of `base`, so no match is skipped.
    """
    base, wall = moment, wall_time(moment, zone)
    while (match := next(_matches(expr, wall), None)) is not None:
        if match.year > moment.year + _HORIZON_YEARS:
            return None  # every match lies in a gap
        here = offset(base, zone)
        candidate = match.replace(tzinfo=UTC) - here
        reach = min(candidate, base + _DAY)
        if offset(reach, zone) != here:
            base = first_shift(zone, base, reach)
            wall = wall_time(base, zone) - _SECOND
        elif reach == candidate:
            return candidate
        else:
            base = max(base + _DAY, candidate - 2 * _DAY)
            wall = wall_time(base, zone)
    return None
