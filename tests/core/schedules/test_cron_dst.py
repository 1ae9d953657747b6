"""Cron rules over every clock shift from 2020 to 2026, against a walk minute by minute.

The walk knows nothing of folds and gaps: it looks at what clocks show, one minute after the
other, and applies docs/specification.md, "Schedules".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.schedules import cron

ZONES = (
    "America/New_York",
    "Europe/London",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Africa/Casablanca",
)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
BEFORE, AFTER = 4 * HOUR, 28 * HOUR

Match = Callable[[datetime], bool]


def shown(moment: datetime, zone: ZoneInfo) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None, fold=0)


@cache
def shifts(zone_name: str) -> tuple[datetime, ...]:
    """The minute at which each shift takes effect."""
    zone, found = ZoneInfo(zone_name), []
    moment, end = datetime(2020, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
    while moment < end:
        if shown(moment + DAY, zone) - shown(moment, zone) != DAY:
            minute = moment
            while shown(minute + MINUTE, zone) - shown(minute, zone) == MINUTE:
                minute += MINUTE
            found.append(minute + MINUTE)
        moment += DAY
    return tuple(found)


EVERY_SHIFT = [(zone, shift) for zone in ZONES for shift in shifts(zone)]
EVERY_GAP = [
    (zone, shift)
    for zone, shift in EVERY_SHIFT
    if shown(shift, ZoneInfo(zone)) > shown(shift - MINUTE, ZoneInfo(zone))
]


@cache
def walk(zone_name: str, shift: datetime) -> tuple[tuple[datetime, datetime], ...]:
    zone, start = ZoneInfo(zone_name), shift - BEFORE
    minutes = int((BEFORE + AFTER) / MINUTE)
    return tuple((start + MINUTE * n, shown(start + MINUTE * n, zone)) for n in range(minutes))


def fires_by_elapsed_time(zone: str, shift: datetime, match: Match) -> Iterator[datetime]:
    return (moment for moment, wall in walk(zone, shift) if match(wall))


def fires_by_wall_clock(zone: str, shift: datetime, match: Match) -> Iterator[datetime]:
    """Each wall time counts when clocks first show it or, passed over, what follows it."""
    latest = walk(zone, shift)[0][1] - MINUTE
    for moment, wall in walk(zone, shift):
        newly = int((wall - latest) / MINUTE)
        if any(match(latest + MINUTE * n) for n in range(1, newly + 1)):
            yield moment
        latest = max(latest, wall)


def fires_of(expr: str, zone_name: str, shift: datetime) -> Iterator[datetime]:
    zone = ZoneInfo(zone_name)
    moment: datetime | None = shift - BEFORE - MINUTE
    while moment := cron.next_after(expr, moment, zone):
        if moment >= shift + AFTER:
            return
        yield moment


EVERY_FOLD = [place for place in EVERY_SHIFT if place not in EVERY_GAP]


def test_the_shifts_are_all_there() -> None:
    counts = {zone: len(shifts(zone)) for zone in ZONES}
    assert counts["America/New_York"] == counts["Europe/London"] == 14
    assert counts["Australia/Lord_Howe"] == 14
    assert counts["Pacific/Apia"] == 3
    # The future shifts of Morocco change with the releases of the time zone database.
    assert counts["Africa/Casablanca"] >= 14


def test_a_fixed_time_is_neither_lost_nor_doubled() -> None:
    """The hours around the shift, by quarters: those in a gap, repeated ones, and neighbours."""
    for zone, shift in EVERY_SHIFT:
        around = shown(shift, ZoneInfo(zone))
        for quarter in range(-6, 7):
            wall = around + timedelta(minutes=15 * quarter)
            hour, minute = wall.hour, wall.minute
            oracle = fires_by_wall_clock(
                zone, shift, lambda w, h=hour, m=minute: (w.hour, w.minute) == (h, m)
            )
            assert list(fires_of(f"{minute} {hour} * * *", zone, shift)) == list(oracle), (
                zone,
                shift,
            )


def test_a_fixed_time_inside_a_gap_fires_once_at_its_end() -> None:
    for zone, shift in EVERY_GAP:
        before, after = shown(shift - MINUTE, ZoneInfo(zone)), shown(shift, ZoneInfo(zone))
        wall = before + MINUTE
        while wall < after:
            expr = f"{wall.minute} {wall.hour} {wall.day} {wall.month} *"
            assert list(fires_of(expr, zone, shift)) == [shift], (zone, shift)
            wall += timedelta(minutes=7)


def test_a_fixed_time_that_was_repeated_comes_the_next_day() -> None:
    for zone, shift in EVERY_FOLD:
        again = shown(shift + 5 * MINUTE, ZoneInfo(zone))
        found = cron.next_after(f"{again.minute} {again.hour} * * *", shift, ZoneInfo(zone))
        assert found is not None, (zone, shift)
        assert shown(found, ZoneInfo(zone)) == again + timedelta(days=1), (zone, shift)


def test_several_times_inside_one_gap_fire_together() -> None:
    for zone, shift in EVERY_SHIFT:
        expr = "5,20,40 0-12 * * *"
        oracle = fires_by_wall_clock(
            zone, shift, lambda wall: wall.minute in (5, 20, 40) and wall.hour <= 12
        )
        assert list(fires_of(expr, zone, shift)) == list(oracle), (zone, shift)


def test_a_wildcard_follows_elapsed_time() -> None:
    for zone, shift in EVERY_SHIFT:
        after = shown(shift, ZoneInfo(zone))
        hour, date = after.hour, after.date()
        rules: dict[str, Match] = {
            "*/30 * * * *": lambda wall: wall.minute % 30 == 0,
            "15 * * * *": lambda wall: wall.minute == 15,
            "45 */2 * * *": lambda wall: wall.minute == 45 and wall.hour % 2 == 0,
        }
        for near in (hour - 1, hour, hour + 1):
            rules[f"*/10 {near % 24} * * *"] = lambda wall, h=near % 24: (
                wall.hour == h and wall.minute % 10 == 0
            )
        rules[f"*/10 {hour} {date.day} {date.month} *"] = lambda wall, h=hour, d=date: (
            wall.date() == d and wall.hour == h and wall.minute % 10 == 0
        )
        for expr, match in rules.items():
            assert list(fires_of(expr, zone, shift)) == list(
                fires_by_elapsed_time(zone, shift, match)
            )


@pytest.mark.parametrize("zone", ZONES)
def test_every_ten_minutes_means_every_ten_minutes(zone: str) -> None:
    for shift in shifts(zone):
        moment = shift - HOUR
        for _ in range(20):
            following = cron.next_after("*/10 * * * *", moment, ZoneInfo(zone))
            assert following == moment + 10 * MINUTE
            moment = following


steps = st.sampled_from([7, 10, 15, 30])
minute_fields = st.one_of(
    st.integers(0, 59).map(lambda m: (str(m), {m})),
    st.lists(st.integers(0, 59), min_size=2, max_size=4).map(
        lambda ms: (",".join(map(str, ms)), set(ms))
    ),
    steps.map(lambda s: (f"*/{s}", set(range(0, 60, s)))),
)
hour_fields = st.one_of(
    st.integers(0, 23).map(lambda h: (str(h), {h})),
    st.tuples(st.integers(0, 23), st.integers(0, 23)).map(
        lambda ab: (f"{min(ab)}-{max(ab)}", set(range(min(ab), max(ab) + 1)))
    ),
    st.just(("*", set(range(24)))),
    st.just(("*/3", set(range(0, 24, 3)))),
)
day_fields = st.one_of(
    st.just(("*", set(range(7)))),
    st.integers(1, 7).map(lambda d: (str(d), {d - 1})),
)


@given(
    st.sampled_from(EVERY_SHIFT),
    minute_fields,
    hour_fields,
    day_fields,
    st.integers(0, int(BEFORE.total_seconds() * 2)),
)
@settings(max_examples=200)
def test_from_any_moment_near_a_shift_the_next_fire_is_the_walks_next(
    place: tuple[str, datetime],
    minutes: tuple[str, set[int]],
    hours: tuple[str, set[int]],
    days: tuple[str, set[int]],
    seconds: int,
) -> None:
    zone, shift = place
    moment = shift - BEFORE + timedelta(seconds=seconds)
    expr = cron.parse(f"{minutes[0]} {hours[0]} * * {days[0]}")

    def match(wall: datetime) -> bool:
        return wall.minute in minutes[1] and wall.hour in hours[1] and wall.weekday() in days[1]

    wildcard = minutes[0].startswith("*") or hours[0].startswith("*")
    fires = (fires_by_elapsed_time if wildcard else fires_by_wall_clock)(zone, shift, match)
    expected = next((fire for fire in fires if fire > moment), None)
    following = cron.next_after(expr, moment, ZoneInfo(zone))
    assert following is not None
    assert following > moment
    if expected is not None:
        assert following == expected
    else:
        assert following >= shift + AFTER


@pytest.mark.parametrize(
    ("zone", "expr", "moment", "expected"),
    [
        ("Africa/Cairo", "30 0 * * *", "2024-04-25T21:00", "2024-04-25T22:00"),
        ("Africa/Cairo", "*/10 0 * * *", "2024-04-25T21:00", "2024-04-26T21:00"),
        ("America/Havana", "*/20 0 * * *", "2024-11-03T04:40", "2024-11-03T05:00"),
        ("Pacific/Apia", "0 12 30 12 *", "2011-12-29T00:00", "2011-12-30T10:00"),
    ],
)
def test_shifts_at_midnight_and_of_a_whole_day(
    zone: str, expr: str, moment: str, expected: str
) -> None:
    start = datetime.fromisoformat(moment).replace(tzinfo=UTC)
    found = cron.next_after(expr, start, ZoneInfo(zone))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@given(
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 0-5 * * *", "15 2 * * *", "0 */6 * * *"]),
    st.sampled_from(EVERY_SHIFT),
    st.integers(0, 3 * 24 * 60),
    st.integers(0, 3 * 24 * 60),
    st.integers(1, 400),
)
@settings(max_examples=150)
def test_the_newest_are_the_last_of_all_that_come(
    expr: str, shift: tuple[str, datetime], before: int, after: int, most: int
) -> None:
    zone, moment = ZoneInfo(shift[0]), shift[1]
    begin, end = moment - before * MINUTE, moment + after * MINUTE
    every, slot = [], cron.next_after(expr, begin, zone)
    while slot is not None and slot <= end:
        every.append(slot)
        slot = cron.next_after(expr, slot, zone)
    found = cron.newest(expr, begin, end, zone, most)
    assert found == every[len(every) - len(found) :]
    # What a gap leaves out is looked for in vain.
    assert min(most, len(every)) - len(found) <= (60 if shift in EVERY_GAP else 0)


def test_newest_of_a_rule_that_seldom_comes_are_found_far_back() -> None:
    zone, end = ZoneInfo("Europe/London"), datetime(2037, 6, 1, 0, 0, 30, tzinfo=UTC)
    begin = datetime(2020, 1, 1, tzinfo=UTC)
    found = cron.newest("* * * 6 *", begin, end, zone, 1440)
    assert len(found) == 1440
    assert [found[-61].year, found[-62].year] == [2037, 2036]
    assert cron.newest("0 0 29 2 *", begin, end, zone, 3)[0].year == 2028
    assert cron.newest("0 0 30 2 *", begin, end, zone, 3) == []
    assert cron.newest("* * * * *", end, end, zone, 3) == []
