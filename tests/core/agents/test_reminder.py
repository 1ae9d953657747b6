"""Reminders: validation, when one fires, and rows that scripts write."""

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


def test_one_time_reminder() -> None:
    new = build_once("a", 5_000, {"reminder": "check_quota"}, NOW)
    assert new == NewReminder("a", NOW + timedelta(seconds=5), '{"reminder":"check_quota"}', None)


@pytest.mark.parametrize(
    "delay", [0, -1, -500, True, False, None, 1.5, 5000.0, "5", [], LONGEST_DELAY_MS + 1, 10**30]
)
def test_invalid_delay(delay: Any) -> None:
    assert build_once("a", delay, {}, NOW) is ScheduleError.INVALID_DELAY


@pytest.mark.parametrize("delay", [1, LONGEST_DELAY_MS])
def test_shortest_and_longest_delay(delay: int) -> None:
    assert isinstance(build_once("a", delay, {}, NOW), NewReminder)


@pytest.mark.parametrize("agent_id", ["", " ", None, 1, "a\n", "x" * 201])
def test_invalid_agent_id(agent_id: Any) -> None:
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
def test_invalid_payload(payload: Any) -> None:
    assert build_once("a", 1, payload, NOW) is ScheduleError.INVALID_PAYLOAD
    assert build_recurring("a", "* * * * *", payload, NOW) is ScheduleError.INVALID_PAYLOAD


def test_recurring_reminder_is_cron_in_utc() -> None:
    new = build_recurring("a", " */5  * * * * ", {}, NOW)
    assert isinstance(new, NewReminder)
    assert (new.schedule, new.next_fire_at) == (
        "*/5 * * * *",
        datetime(2026, 2, 22, 12, 5, tzinfo=UTC),
    )


RULES = [None, "", "x", "* * * *", "99 * * * *", "0 0 30 2 *", 5, "*" * (LONGEST_SCHEDULE + 1)]


@pytest.mark.parametrize("rule", RULES)
def test_invalid_schedule(rule: Any) -> None:
    assert build_recurring("a", rule, {}, NOW) is ScheduleError.INVALID_SCHEDULE


def test_late_row_fires_once_and_continues_from_now() -> None:
    old = "2026-01-01T00:00:00.000000Z"
    assert judge_reminder(old, None, is_one_time=True, now=NOW) == FireNow(None)
    assert judge_reminder(old, "0 * * * *", is_one_time=False, now=NOW) == FireNow(
        datetime(2026, 2, 22, 13, 0, tzinfo=UTC)
    )


def test_row_that_is_not_due() -> None:
    assert judge_reminder(FUTURE, None, is_one_time=True, now=NOW) == FireLater(
        NOW + timedelta(seconds=1)
    )


@pytest.mark.parametrize("text", ["2026-02-22 12:00:31", "2026-02-22T14:00:31+02:00"])
def test_times_are_parsed_in_any_format(text: str) -> None:
    assert judge_reminder(text, None, is_one_time=True, now=NOW) == FireLater(
        NOW + timedelta(seconds=1)
    )


@pytest.mark.parametrize("rule", RULES)
def test_invalid_schedule_of_a_row_is_a_failure(rule: Any) -> None:
    assert isinstance(judge_reminder(PAST, rule, is_one_time=False, now=NOW), Failure)


def test_row_without_a_time_is_a_failure() -> None:
    assert isinstance(judge_reminder("soon", None, is_one_time=True, now=NOW), Failure)


def test_one_time_row_ignores_its_schedule() -> None:
    assert judge_reminder(PAST, "nonsense", is_one_time=True, now=NOW) == FireNow(None)


BY_RULE = "2026-02-22T13:00:00.000000Z"


@pytest.mark.parametrize("at", [BY_RULE, FUTURE, PAST, "garbage"])
def test_row_that_is_not_later_than_its_schedule_is_unchanged(at: str) -> None:
    assert find_earlier_fire(at, "0 * * * *", NOW) is None


def test_occurrence_fired_by_a_clock_slightly_ahead_is_not_repeated() -> None:
    assert find_earlier_fire("2026-02-22T14:00:00.000000Z", "0 * * * *", NOW) is None


@pytest.mark.parametrize("at", ["2026-02-22T15:00:00.000000Z", "2027-02-22T13:00:00.000000Z"])
def test_row_later_than_its_schedule_is_corrected(at: str) -> None:
    assert find_earlier_fire(at, "0 * * * *", NOW) == datetime(2026, 2, 22, 13, 0, tzinfo=UTC)
    assert find_earlier_fire(at, "no rule", NOW) is None


def test_topic() -> None:
    assert build_topic("agent-7") == "agent:agent-7:scheduled"
