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
from ductile.store.reminders import ScheduledReminder
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


def test_payload_is_published_when_due(house: House) -> None:
    kept = house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    assert isinstance(kept, ScheduledReminder)
    house.clock.advance(4.999)
    tick(house)
    assert house.told(TOPIC) == []
    house.clock.advance(0.001)
    tick(house)
    assert house.told(TOPIC) == [("reminder", PAYLOAD)]


@pytest.mark.parametrize("text", ["[1, 2]", '"x"', "null", "5", "no JSON"])
def test_payload_of_a_script_is_wrapped_in_an_object(house: House, text: str) -> None:
    execute(
        house.ledger,
        "INSERT INTO cron_jobs (agent_id, next_fire_at, payload, is_one_time)"
        f" VALUES ('agent-7', '2020-01-01T00:00:00.000000Z', '{text}', TRUE)",
    )
    tick(house)
    assert house.told(TOPIC) == [("reminder", {"payload": document(text)})]


@pytest.mark.parametrize("delay", [0, -1, -5_000, True, False, LONGEST_DELAY_MS + 1, 10**30])
def test_invalid_delay_is_an_error_value(house: House, delay: int) -> None:
    answer = house.agents.reminders.schedule_once("agent-7", delay, PAYLOAD)
    assert answer is ScheduleError.INVALID_DELAY
    assert answer == "invalid_delay"
    assert house.reminders() == []


def test_one_time_row_is_deleted_when_it_fires(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    (row,) = house.reminders()
    assert row["is_one_time"] is True
    assert row["next_fire_at"] == to_text(house.clock.now() + timedelta(seconds=5))
    house.clock.advance(5)
    tick(house)
    assert house.reminders() == []


def test_recurring_row_moves_to_its_next_time(house: House) -> None:
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
def test_recurring_row_is_corrected_after_a_clock_was_ahead(house: House, restarted: bool) -> None:
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


def test_row_left_by_a_crash_fires_at_the_next_start(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    house.clock.advance(3600)
    house.start()
    tick(house)
    assert house.told(TOPIC) == [("reminder", PAYLOAD)]
    assert house.reminders() == []


def test_late_recurring_row_fires_once(house: House) -> None:
    write_row(house, "30 3 * * *", "2026-01-01T03:30:00.000000Z")
    tick(house)
    assert len(house.told(TOPIC)) == 1
    assert house.reminders()[0]["next_fire_at"] == "2026-02-09T03:30:00.000000Z"


def test_invalid_recurring_row_is_logged_and_skipped(house: House, log: Log) -> None:
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


def test_invalid_row_is_logged_once_per_reason(house: House, log: Log) -> None:
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


def test_row_with_a_time_in_another_format_fires_on_time(house: House) -> None:
    write_row(house, "0 0 * * *", "2026-02-08T13:00:05+03:00")
    tick(house)
    assert house.told(TOPIC) == []
    house.clock.advance(5)
    tick(house)
    assert len(house.told(TOPIC)) == 1


def test_time_in_another_format_is_normalized_while_running(house: House) -> None:
    tick(house)
    write_row(house, "0 0 * * *", "2026-02-08T13:00:30+03:00")
    house.clock.advance(61)
    tick(house)
    assert len(house.told(TOPIC)) == 1


def test_loop_sleeps_until_the_next_reminder_or_poll(house: House) -> None:
    assert tick(house) == POLL_SECONDS
    house.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert tick(house) == 0.25
    house.agents.reminders.schedule_once("agent-7", 86_400_000, PAYLOAD)
    house.clock.advance(0.25)
    assert tick(house) == POLL_SECONDS


def test_new_reminder_wakes_the_loop(house: House) -> None:
    house.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert house.woken == 1
    house.agents.reminders.schedule_once("agent-7", 0, PAYLOAD)
    assert house.woken == 1


def test_many_due_reminders_fire_in_pages(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminders, "BATCH", 7)
    for number in range(30):
        house.agents.reminders.schedule_once("agent-7", number + 1, {"number": number})
    house.clock.advance(1)
    tick(house)
    assert [payload["number"] for _, payload in house.told(TOPIC)] == list(range(30))


def test_secrets_are_stored_but_not_published(house: House) -> None:
    secret = "correct-horse-battery"
    node = Agents(house.ledger, house.clock, redact=Redactor([secret]).document, wake=lambda: None)
    node.reminders.schedule_once("agent-7", 1, {"key": secret})
    house.clock.advance(1)
    assert house.reminders()[0]["payload"] == {"key": secret}
    node.reminders.tick(house.clock.now())
    assert house.told(TOPIC) == [("reminder", {"key": "[REDACTED]"})]


@pytest.mark.parametrize("payload", [None, [], "x", {"a": "x" * 70_000}])
def test_invalid_payload(house: House, payload: Any) -> None:
    answer = house.agents.reminders.schedule_once("agent-7", 1, payload)
    assert answer is ScheduleError.INVALID_PAYLOAD
