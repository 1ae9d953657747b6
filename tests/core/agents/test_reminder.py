"""When a reminder fires, what may be asked for, and what a row that a script wrote may hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ductile.core.agents.reminder import (
    LARGEST_PAYLOAD,
    LONGEST_DELAY_MS,
    LONGEST_SCHEDULE,
    FireLater,
    FireNow,
    NewReminder,
    ScheduleError,
    build_once,
    build_recurring,
    build_topic,
    find_earlier_fire,
    judge_reminder,
)
from ductile.core.jobs.limits import DEEPEST
from ductile.core.values.json_values import Failure

NOW = datetime(2026, 2, 22, 12, 0, 30, tzinfo=UTC)
PAST, FUTURE = "2026-02-22T12:00:29.000000Z", "2026-02-22T12:00:31.000000Z"


def test_once() -> None:
    new = build_once("a", 5_000, {"reminder": "check_quota"}, NOW)
    assert new == NewReminder("a", NOW + timedelta(seconds=5), '{"reminder":"check_quota"}', None)


@pytest.mark.parametrize(
    "delay", [0, -1, -500, True, False, None, 1.5, 5000.0, "5", [], LONGEST_DELAY_MS + 1, 10**30]
)
def test_a_delay_that_is_none(delay: Any) -> None:
    assert build_once("a", delay, {}, NOW) is ScheduleError.INVALID_DELAY


@pytest.mark.parametrize("delay", [1, LONGEST_DELAY_MS])
def test_the_shortest_and_the_longest_delay(delay: int) -> None:
    assert isinstance(build_once("a", delay, {}, NOW), NewReminder)


@pytest.mark.parametrize("agent_id", ["", " ", None, 1, "a\n", "x" * 201])
def test_an_agent_that_is_none(agent_id: Any) -> None:
    assert build_once(agent_id, 1, {}, NOW) is ScheduleError.INVALID_AGENT
    assert build_recurring(agent_id, "* * * * *", {}, NOW) is ScheduleError.INVALID_AGENT


def deep(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    "payload",
    [None, [], "x", 1, {"a": "x" * LARGEST_PAYLOAD}, deep(DEEPEST), deep(300), {"a": 10**30}],
)
def test_a_payload_that_cannot_be_kept(payload: Any) -> None:
    assert build_once("a", 1, payload, NOW) is ScheduleError.INVALID_PAYLOAD
    assert build_recurring("a", "* * * * *", payload, NOW) is ScheduleError.INVALID_PAYLOAD


def test_recurring_is_cron_in_utc() -> None:
    new = build_recurring("a", " */5  * * * * ", {}, NOW)
    assert isinstance(new, NewReminder)
    assert (new.schedule, new.next_fire_at) == (
        "*/5 * * * *",
        datetime(2026, 2, 22, 12, 5, tzinfo=UTC),
    )


RULES = [None, "", "x", "* * * *", "99 * * * *", "0 0 30 2 *", 5, "*" * (LONGEST_SCHEDULE + 1)]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_none(rule: Any) -> None:
    assert build_recurring("a", rule, {}, NOW) is ScheduleError.INVALID_SCHEDULE


def test_a_row_that_is_late_fires_once_and_moves_on_from_now() -> None:
    old = "2026-01-01T00:00:00.000000Z"
    assert judge_reminder(old, None, is_one_time=True, now=NOW) == FireNow(None)
    assert judge_reminder(old, "0 * * * *", is_one_time=False, now=NOW) == FireNow(
        datetime(2026, 2, 22, 13, 0, tzinfo=UTC)
    )


def test_a_row_that_is_not_due() -> None:
    assert judge_reminder(FUTURE, None, is_one_time=True, now=NOW) == FireLater(
        NOW + timedelta(seconds=1)
    )


@pytest.mark.parametrize("text", ["2026-02-22 12:00:31", "2026-02-22T14:00:31+02:00"])
def test_times_are_read_in_any_form(text: str) -> None:
    assert judge_reminder(text, None, is_one_time=True, now=NOW) == FireLater(
        NOW + timedelta(seconds=1)
    )


@pytest.mark.parametrize("rule", RULES)
def test_a_recurring_row_with_a_bad_rule_is_a_failure(rule: Any) -> None:
    assert isinstance(judge_reminder(PAST, rule, is_one_time=False, now=NOW), Failure)


def test_a_row_without_a_time_is_a_failure() -> None:
    assert isinstance(judge_reminder("soon", None, is_one_time=True, now=NOW), Failure)


def test_one_time_counts_whatever_the_rule_says() -> None:
    assert judge_reminder(PAST, "nonsense", is_one_time=True, now=NOW) == FireNow(None)


BY_RULE = "2026-02-22T13:00:00.000000Z"


@pytest.mark.parametrize("at", [BY_RULE, FUTURE, PAST, "garbage"])
def test_one_that_comes_by_its_rule_or_sooner_stays_as_it_is(at: str) -> None:
    assert find_earlier_fire(at, "0 * * * *", NOW) is None


def test_a_time_that_a_clock_a_little_ahead_has_fired_does_not_come_again() -> None:
    assert find_earlier_fire("2026-02-22T14:00:00.000000Z", "0 * * * *", NOW) is None


@pytest.mark.parametrize("at", ["2026-02-22T15:00:00.000000Z", "2027-02-22T13:00:00.000000Z"])
def test_one_that_waits_for_longer_than_its_rule_says_comes_by_it(at: str) -> None:
    assert find_earlier_fire(at, "0 * * * *", NOW) == datetime(2026, 2, 22, 13, 0, tzinfo=UTC)
    assert find_earlier_fire(at, "no rule", NOW) is None


def test_the_topic() -> None:
    assert build_topic("agent-7") == "agent:agent-7:scheduled"
