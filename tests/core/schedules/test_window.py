"""Windows: hours of the day and days of the week, through clock shifts."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.schedules.window import Window, weekday
from tests.core.schedules.test_cron_dst import EVERY_SHIFT, HOUR, MINUTE, ZONES, shown

UTC_ZONE = ZoneInfo("UTC")
NEW_YORK = ZoneInfo("America/New_York")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("08:00-22:00", ["08:00:00", "21:59:59"], ["07:59:59", "22:00:00"]),
        ("22:00-06:00", ["22:00:00", "00:00:00", "05:59:59"], ["21:59:59", "06:00:00"]),
        ("8:30 - 9:15", ["08:30:00", "09:14:59"], ["08:29:59", "09:15:00"]),
        ("18:00-24:00", ["18:00:00", "23:59:59"], ["17:59:59", "00:00:00"]),
        ("23:00-00:00", ["23:00:00"], ["22:59:59", "00:00:00"]),
    ],
)
def test_a_window_holds_its_start_and_not_its_end(
    text: str, inside: list[str], outside: list[str]
) -> None:
    window = Window.parse(text, UTC_ZONE)
    assert all(window.contains(at(f"2026-05-20T{time}")) for time in inside)
    assert not any(window.contains(at(f"2026-05-20T{time}")) for time in outside)


@pytest.mark.parametrize(
    "text", ["8am-10pm", "08:00", "", "24:00-06:00", "08:60-09:00", "08:00-25:00", "08:00-08:00"]
)
def test_a_wrong_window_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a window"):
        Window.parse(text, UTC_ZONE)


def test_weekdays_go_by_name_abbreviation_and_number() -> None:
    assert {weekday(token) for token in ("sunday", "Sun", "SUN ", 0, 7, "0", "7")} == {6}
    assert [weekday(n) for n in range(1, 7)] == [0, 1, 2, 3, 4, 5]
    assert weekday("tues") == weekday("tuesday") == weekday(2)
    assert weekday("thurs") == weekday("thu") == weekday("4")


@pytest.mark.parametrize("token", ["funday", "s", "mo", 8, -1, "", True, "mondays"])
def test_a_wrong_weekday_is_refused(token: str | int) -> None:
    with pytest.raises(ValueError, match="is not a weekday"):
        weekday(token)


def test_a_week_without_days_is_refused() -> None:
    with pytest.raises(ValueError, match="no day"):
        Window.parse(None, UTC_ZONE, range(7))


def test_a_weekend_is_passed_over_to_mondays_start() -> None:
    window = Window.parse("08:00-22:00", UTC_ZONE, ["saturday", "sunday"])
    friday_night = at("2026-05-22T22:30")
    assert window.next_start(friday_night) == at("2026-05-25T08:00")
    assert window.bars_day(at("2026-05-23T12:00"))
    assert not window.bars_day(friday_night)


def test_weekdays_alone_open_at_midnight() -> None:
    window = Window.parse(None, NEW_YORK, ["sun"])
    assert window.next_start(at("2026-05-24T12:00")) == at("2026-05-25T04:00")


def test_overnight_window_belongs_to_the_day_that_the_clock_shows() -> None:
    window = Window.parse("22:00-06:00", UTC_ZONE, ["sunday"])
    assert window.contains(at("2026-05-23T23:59"))
    assert not window.contains(at("2026-05-24T00:00"))
    assert window.next_start(at("2026-05-24T00:00")) == at("2026-05-25T00:00")


def test_a_window_that_never_shuts_is_open_now() -> None:
    moment = at("2026-05-24T12:00")
    assert Window.parse("00:00-24:00", NEW_YORK).next_start(moment) == moment


def test_a_start_inside_a_gap_opens_at_its_end() -> None:
    window = Window.parse("02:30-05:00", NEW_YORK)
    assert window.next_start(at("2026-03-08T05:00")) == at("2026-03-08T07:00")


def test_a_window_wholly_inside_a_gap_waits_for_the_next_day() -> None:
    window = Window.parse("02:10-02:50", NEW_YORK)
    assert window.next_start(at("2026-03-08T05:00")) == at("2026-03-09T06:10")


def test_a_window_inside_a_repeated_hour_opens_twice() -> None:
    window = Window.parse("01:10-01:20", NEW_YORK)
    first = window.next_start(at("2026-11-01T04:00"))
    assert first == at("2026-11-01T05:10")
    assert window.next_start(first) == at("2026-11-01T06:10")


windows = st.builds(
    Window,
    st.sampled_from(ZONES).map(ZoneInfo),
    st.integers(0, 1439),
    st.integers(1, 1440),
    st.frozensets(st.integers(0, 6), max_size=5),
).filter(lambda window: window.start != window.end and (window.start or window.end < 1440))


def by_the_clock(window: Window) -> Callable[[datetime], bool]:
    length = (window.end - window.start) % 1440 or 1440
    minutes = {(window.start + n) % 1440 for n in range(length)}

    def is_open(moment: datetime) -> bool:
        wall = shown(moment, window.zone)
        return wall.weekday() not in window.not_on and wall.hour * 60 + wall.minute in minutes

    return is_open


@given(windows, st.data())
@settings(max_examples=150, deadline=None)
def test_next_start_is_the_first_minute_that_opens_near_a_shift(
    window: Window, data: st.DataObject
) -> None:
    near = [shift for zone, shift in EVERY_SHIFT if zone == window.zone.key]
    moment = data.draw(st.sampled_from(near)) + MINUTE * data.draw(st.integers(-300, 300))
    is_open = by_the_clock(window)
    assert window.contains(moment) == is_open(moment)
    opening = window.next_start(moment)
    assert opening > moment
    assert is_open(opening)
    assert not is_open(opening - MINUTE)
    minute, was_open = moment, is_open(moment)
    while (minute := minute + MINUTE) < min(opening, moment + 30 * HOUR):
        opened = is_open(minute) and not was_open
        assert not opened, f"{minute} opened before {opening}"
        was_open = is_open(minute)
