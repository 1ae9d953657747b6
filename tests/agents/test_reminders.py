"""Reminders: kept before they are promised, fired once, taken up by a restart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ductile.agents.agents import Agents
from ductile.agents.reminders import POLL_SECONDS
from ductile.clock import to_text
from ductile.core.agents.reminder import LONGEST_DELAY_MS, ScheduleError, build_recurring
from ductile.core.jobs.limits import document
from ductile.core.values.redact import Redactor
from ductile.store import reminders
from ductile.store.reminders import Scheduled
from tests.agents.house import House, Log
from tests.store.conftest import execute

TOPIC = "agent:agent-7:scheduled"
PAYLOAD = {"reminder": "check_quota"}


def tick(house: House) -> float:
    return house.agents.reminders.tick(house.clock.now())


def write_row(house: House, schedule: str, next_fire_at: str) -> None:
    execute(
        house.ledger,
        "INSERT INTO cron_jobs (agent_id, schedule, next_fire_at, payload)"
        f" VALUES ('agent-7', '{schedule}', '{next_fire_at}', '{{}}')",
    )


def test_fr_10_5_positive_the_payload_is_broadcast_when_the_time_has_come(house: House) -> None:
    kept = house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    assert isinstance(kept, Scheduled)
    house.clock.advance(4.999)
    tick(house)
    assert house.told(TOPIC) == []
    house.clock.advance(0.001)
    tick(house)
    assert house.told(TOPIC) == [("reminder", PAYLOAD)]


@pytest.mark.parametrize("text", ["[1, 2]", '"x"', "null", "5", "no JSON"])
def test_a_payload_of_a_script_that_is_no_object_is_told_inside_one(
    house: House, text: str
) -> None:
    execute(
        house.ledger,
        "INSERT INTO cron_jobs (agent_id, next_fire_at, payload, is_one_time)"
        f" VALUES ('agent-7', '2020-01-01T00:00:00.000000Z', '{text}', TRUE)",
    )
    tick(house)
    assert house.told(TOPIC) == [("reminder", {"payload": document(text)})]


@pytest.mark.parametrize("delay", [0, -1, -5_000, True, False, LONGEST_DELAY_MS + 1, 10**30])
def test_fr_10_5_negative_a_delay_that_is_none_is_an_error_value(house: House, delay: int) -> None:
    answer = house.agents.reminders.schedule_once("agent-7", delay, PAYLOAD)
    assert answer is ScheduleError.INVALID_DELAY
    assert answer == "invalid_delay"
    assert house.reminders() == []


def test_fr_10_6_positive_a_one_time_row_lives_until_it_fires(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    (row,) = house.reminders()
    assert row["is_one_time"] is True
    assert row["next_fire_at"] == to_text(house.clock.now() + timedelta(seconds=5))
    house.clock.advance(5)
    tick(house)
    assert house.reminders() == []


def test_fr_10_6_positive_a_recurring_row_moves_and_stays(house: House) -> None:
    house.agents.reminders.schedule(
        build_recurring("agent-7", "*/10 * * * *", PAYLOAD, house.clock.now())
    )
    for _ in range(3):
        house.clock.advance(600)
        tick(house)
    assert len(house.told(TOPIC)) == 3
    (row,) = house.reminders()
    assert row["next_fire_at"] == to_text(house.clock.now() + timedelta(minutes=10))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_recurring_row_outlives_a_clock_that_was_ahead(house: House, restarted: bool) -> None:
    house.agents.reminders.schedule(
        build_recurring("agent-7", "*/10 * * * *", PAYLOAD, house.clock.now())
    )
    year = timedelta(days=365)
    house.clock.moment += year
    tick(house)
    assert house.reminders()[0]["next_fire_at"].startswith("2027")
    house.clock.moment -= year
    if restarted:
        house.start()
    tick(house)
    house.clock.advance(600)
    tick(house)
    assert len(house.told(TOPIC)) == 2


def test_fr_10_6_negative_a_row_that_a_crash_left_fires_at_the_next_start(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    house.clock.advance(3600)
    house.start()
    tick(house)
    assert house.told(TOPIC) == [("reminder", PAYLOAD)]
    assert house.reminders() == []


def test_reading_recurring_rows_are_cron_in_utc_and_fire_once_when_late(house: House) -> None:
    write_row(house, "30 3 * * *", "2026-01-01T03:30:00.000000Z")
    tick(house)
    assert len(house.told(TOPIC)) == 1
    assert house.reminders()[0]["next_fire_at"] == "2026-02-09T03:30:00.000000Z"


def test_reading_an_invalid_recurring_row_is_logged_and_skipped(house: House, log: Log) -> None:
    write_row(house, "every day", "2026-01-01T00:00:00.000000Z")
    house.agents.reminders.schedule_once("agent-7", 1, PAYLOAD)
    house.clock.advance(1)
    tick(house)
    assert house.told(TOPIC) == [("reminder", PAYLOAD)]
    warned = [line for line in log.lines() if line["level"] == "warn"]
    assert [(line["agent_id"], "5 wanted" in line["reason"]) for line in warned] == [
        ("agent-7", True)
    ]
    assert len(house.reminders()) == 1


def test_it_is_told_of_once_and_again_when_it_is_rewritten(house: House, log: Log) -> None:
    write_row(house, "every day", "2026-01-01T00:00:00.000000Z")
    for _ in range(3):
        tick(house)
    assert len(log.lines()) == 1
    execute(house.ledger, "UPDATE cron_jobs SET schedule = 'every week'")
    tick(house)
    assert len(log.lines()) == 1
    execute(house.ledger, "UPDATE cron_jobs SET schedule = '0 0 * * *'")
    tick(house)
    assert [line["message"] for line in log.lines()] == ["reminder fired"]


def test_a_row_in_another_form_of_time_fires_when_it_is_meant(house: House) -> None:
    write_row(house, "0 0 * * *", "2026-02-08T13:00:05+03:00")
    tick(house)
    assert house.told(TOPIC) == []
    house.clock.advance(5)
    tick(house)
    assert len(house.told(TOPIC)) == 1


def test_a_row_in_another_form_is_straightened_while_it_runs(house: House) -> None:
    tick(house)
    write_row(house, "0 0 * * *", "2026-02-08T13:00:30+03:00")
    house.clock.advance(61)
    tick(house)
    assert len(house.told(TOPIC)) == 1


def test_the_loop_sleeps_until_the_next_is_due_and_no_longer_than_a_poll(house: House) -> None:
    assert tick(house) == POLL_SECONDS
    house.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert tick(house) == 0.25
    house.agents.reminders.schedule_once("agent-7", 86_400_000, PAYLOAD)
    house.clock.advance(0.25)
    assert tick(house) == POLL_SECONDS


def test_a_new_one_wakes_the_loop(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert house.woken == 1
    house.agents.reminders.schedule_once("agent-7", 0, PAYLOAD)
    assert house.woken == 1


def test_many_that_are_due_fire_in_pages(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminders, "AT_ONCE", 7)
    for number in range(30):
        house.agents.reminders.schedule_once("agent-7", number + 1, {"number": number})
    house.clock.advance(1)
    tick(house)
    assert [payload["number"] for _, payload in house.told(TOPIC)] == list(range(30))


def test_secrets_are_kept_and_not_told(house: House) -> None:
    secret = "correct-horse-battery"
    node = Agents(house.ledger, house.clock, redact=Redactor([secret]).document, wake=lambda: None)
    node.reminders.schedule_once("agent-7", 1, {"key": secret})
    house.clock.advance(1)
    assert house.reminders()[0]["payload"] == {"key": secret}
    node.reminders.tick(house.clock.now())
    assert house.told(TOPIC) == [("reminder", {"key": "[REDACTED]"})]


@pytest.mark.parametrize("payload", [None, [], "x", {"a": "x" * 70_000}])
def test_a_payload_that_cannot_be_kept(house: House, payload: Any) -> None:
    answer = house.agents.reminders.schedule_once("agent-7", 1, payload)
    assert answer is ScheduleError.INVALID_PAYLOAD
