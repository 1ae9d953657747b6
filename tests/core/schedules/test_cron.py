"""Cron rules: what they may say, and what they mean on ordinary days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.schedules import cron

BERLIN = ZoneInfo("Europe/Berlin")
MOMENT = datetime(2026, 5, 20, 10, 30, tzinfo=UTC)


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        ("* * * * *", "2026-05-20T10:31"),
        ("*/15 * * * *", "2026-05-20T10:45"),
        ("0 9-17/4 * * *", "2026-05-20T13:00"),
        ("5,35 * * * *", "2026-05-20T10:35"),
        ("0 0 * * 0", "2026-05-24T00:00"),
        ("0 0 * * 7", "2026-05-24T00:00"),
        ("0 0 * * sun", "2026-05-24T00:00"),
        ("0 0 * * MON-FRI", "2026-05-21T00:00"),
        ("0 0 1 jan *", "2027-01-01T00:00"),
        ("0 0 29 2 *", "2028-02-29T00:00"),
        ("0 0 13 * 5", "2026-05-22T00:00"),
        ("0 0 L * *", "2026-05-31T00:00"),
        ("0 0 * * 5#2", "2026-06-12T00:00"),
    ],
)
def test_a_rule_finds_its_next_time(expr: str, expected: str) -> None:
    assert cron.next_after(cron.parse(expr), MOMENT, ZoneInfo("UTC")) == at(expected)


def test_day_of_month_or_day_of_week_suffices_where_both_are_given() -> None:
    moment, days = at("2026-05-01T00:00"), []
    for _ in range(6):
        moment = cron.next_after("0 0 13 * 5", moment, ZoneInfo("UTC")) or moment
        days.append(moment.day)
    assert days == [8, 13, 15, 22, 29, 5]


def test_a_moment_that_matches_is_not_its_own_next() -> None:
    assert cron.next_after("30 10 * * *", MOMENT, ZoneInfo("UTC")) == MOMENT + timedelta(days=1)


def test_a_fraction_of_a_second_before_a_match_finds_it() -> None:
    moment = MOMENT - timedelta(microseconds=1)
    assert cron.next_after("30 10 * * *", moment, ZoneInfo("UTC")) == MOMENT


def test_times_are_those_of_the_zone() -> None:
    assert cron.next_after("0 14 * * *", MOMENT, BERLIN) == at("2026-05-20T12:00")


@pytest.mark.parametrize("expr", ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "*/5 0 30 2 *"])
def test_a_date_that_no_year_has_is_never(expr: str) -> None:
    assert cron.next_after(cron.parse(expr), MOMENT, BERLIN) is None


def test_a_rule_whose_every_match_lies_in_a_gap_is_never() -> None:
    second_sunday_of_march = "*/5 2 8-14 3 */7"
    new_york = ZoneInfo("America/New_York")
    assert cron.next_after(cron.parse(second_sunday_of_march), MOMENT, new_york) is None


def test_the_end_of_the_calendar_is_never() -> None:
    moment = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    for expr in ("0 0 1 1 *", "* * * * *"):
        assert cron.next_after(expr, moment, BERLIN) is None


@pytest.mark.parametrize(
    ("expr", "says"),
    [
        ("* * * *", "4 fields; it must have 5 (minute hour day-of-month month day-of-week)"),
        ("0 * * * * *", "6 fields; it must have 5"),
        ("@daily", "1 fields; it must have 5"),
        ("", "0 fields; it must have 5"),
        ("60 * * * *", "minute cannot be '60'; allowed: 0-59"),
        ("0 24 * * *", "hour cannot be '24'; allowed: 0-23"),
        ("0 0 0 * *", "day-of-month cannot be '0'; allowed: 1-31"),
        ("0 0 1 13 *", "month cannot be '13'; allowed: 1-12 or JAN-DEC"),
        ("0 0 * * 8", "day-of-week cannot be '8'; allowed: 0-7 (0 and 7 are Sunday)"),
        ("0 0 * * funday", "day-of-week cannot be 'funday'"),
        ("*/0 * * * *", "minute cannot be '*/0'"),
        ("5-1 * * * *", "minute cannot be '5-1'"),
        ("1, * * * *", "minute cannot be '1,'"),
        ("٣ * * * *", "minute cannot be '٣'"),
    ],
)
def test_a_wrong_rule_is_refused_by_field(expr: str, says: str) -> None:
    with pytest.raises(ValueError) as refusal:
        cron.parse(expr)
    assert says in str(refusal.value)
    assert repr(expr) in str(refusal.value)


@given(st.text("0123456789*/,-#LWMONJAFRI ?@x ", max_size=20))
@settings(max_examples=400, deadline=None)
def test_any_text_parses_or_is_refused_and_never_hangs(text: str) -> None:
    try:
        expr = cron.parse(text)
    except ValueError:
        return
    following = cron.next_after(expr, MOMENT, BERLIN)
    assert following is None or following > MOMENT


@given(
    st.sampled_from(["7", "*/7", "1-50/9", "*", "0,59"]),
    st.sampled_from(["3", "*", "*/5", "0-6", "1,23"]),
    st.sampled_from(["*", "*/10", "1,31", "28-31"]),
    st.sampled_from(["*", "2", "*/3"]),
    st.sampled_from(["*", "1-5", "0,6", "*/2"]),
    st.integers(0, 18 * 365 * 86400).map(lambda seconds: MOMENT + timedelta(seconds=seconds)),
)
@settings(max_examples=200, deadline=None)
def test_in_utc_all_is_as_cronsim_computes_it(
    minute: str, hour: str, day: str, month: str, dow: str, moment: datetime
) -> None:
    expr = " ".join((minute, hour, day, month, dow))
    ours = []
    following: datetime | None = moment
    for _ in range(5):
        assert following is not None
        following = cron.next_after(cron.parse(expr), following, ZoneInfo("UTC"))
        ours.append(following)
    assert ours == list(islice(CronSim(expr, moment), 5))
