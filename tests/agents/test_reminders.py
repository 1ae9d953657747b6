"""Reminders: stored durably, fired once, continued after a restart."""

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
from tests.agents.harness import AgentsHarness, LogCapture
from tests.store.conftest import execute

TOPIC = "agent:agent-7:scheduled"
PAYLOAD = {"reminder": "check_quota"}


def tick(harness: AgentsHarness) -> float:
    return harness.agents.reminders.tick(harness.clock.now())


def write_row(harness: AgentsHarness, schedule: str, next_fire_at: str) -> None:
    execute(
        harness.ledger,
        "INSERT INTO cron_jobs (agent_id, schedule, next_fire_at, payload)"
        f" VALUES ('agent-7', '{schedule}', '{next_fire_at}', '{{}}')",
    )


def test_payload_is_published_when_due(harness: AgentsHarness) -> None:
    kept = harness.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    assert isinstance(kept, ScheduledReminder)
    harness.clock.advance(4.999)
    tick(harness)
    assert harness.read_notices(TOPIC) == []
    harness.clock.advance(0.001)
    tick(harness)
    assert harness.read_notices(TOPIC) == [("reminder", PAYLOAD)]


@pytest.mark.parametrize("text", ["[1, 2]", '"x"', "null", "5", "no JSON"])
def test_payload_of_a_script_is_wrapped_in_an_object(harness: AgentsHarness, text: str) -> None:
    execute(
        harness.ledger,
        "INSERT INTO cron_jobs (agent_id, next_fire_at, payload, is_one_time)"
        f" VALUES ('agent-7', '2020-01-01T00:00:00.000000Z', '{text}', TRUE)",
    )
    tick(harness)
    assert harness.read_notices(TOPIC) == [("reminder", {"payload": document(text)})]


@pytest.mark.parametrize("delay", [0, -1, -5_000, True, False, LONGEST_DELAY_MS + 1, 10**30])
def test_invalid_delay_is_an_error_value(harness: AgentsHarness, delay: int) -> None:
    answer = harness.agents.reminders.schedule_once("agent-7", delay, PAYLOAD)
    assert answer is ScheduleError.INVALID_DELAY
    assert answer == "invalid_delay"
    assert harness.reminders() == []


def test_one_time_row_is_deleted_when_it_fires(harness: AgentsHarness) -> None:
    harness.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    (row,) = harness.reminders()
    assert row["is_one_time"] is True
    assert row["next_fire_at"] == to_text(harness.clock.now() + timedelta(seconds=5))
    harness.clock.advance(5)
    tick(harness)
    assert harness.reminders() == []


def test_recurring_row_moves_to_its_next_time(harness: AgentsHarness) -> None:
    harness.agents.reminders.schedule(
        build_recurring("agent-7", "*/10 * * * *", PAYLOAD, harness.clock.now())
    )
    for _ in range(3):
        harness.clock.advance(600)
        tick(harness)
    assert len(harness.read_notices(TOPIC)) == 3
    (row,) = harness.reminders()
    assert row["next_fire_at"] == to_text(harness.clock.now() + timedelta(minutes=10))


@pytest.mark.parametrize("restarted", [False, True])
def test_recurring_row_is_corrected_after_a_clock_was_ahead(
    harness: AgentsHarness, restarted: bool
) -> None:
    harness.agents.reminders.schedule(
        build_recurring("agent-7", "*/10 * * * *", PAYLOAD, harness.clock.now())
    )
    year = timedelta(days=365)
    harness.clock.moment += year
    tick(harness)
    assert harness.reminders()[0]["next_fire_at"].startswith("2027")
    harness.clock.moment -= year
    if restarted:
        harness.start()
    tick(harness)
    harness.clock.advance(600)
    tick(harness)
    assert len(harness.read_notices(TOPIC)) == 2


def test_row_left_by_a_crash_fires_at_the_next_start(harness: AgentsHarness) -> None:
    harness.agents.reminders.schedule_once("agent-7", 5_000, PAYLOAD)
    harness.clock.advance(3600)
    harness.start()
    tick(harness)
    assert harness.read_notices(TOPIC) == [("reminder", PAYLOAD)]
    assert harness.reminders() == []


def test_late_recurring_row_fires_once(harness: AgentsHarness) -> None:
    write_row(harness, "30 3 * * *", "2026-01-01T03:30:00.000000Z")
    tick(harness)
    assert len(harness.read_notices(TOPIC)) == 1
    assert harness.reminders()[0]["next_fire_at"] == "2026-02-09T03:30:00.000000Z"


def test_invalid_recurring_row_is_logged_and_skipped(
    harness: AgentsHarness, log: LogCapture
) -> None:
    write_row(harness, "every day", "2026-01-01T00:00:00.000000Z")
    harness.agents.reminders.schedule_once("agent-7", 1, PAYLOAD)
    harness.clock.advance(1)
    tick(harness)
    assert harness.read_notices(TOPIC) == [("reminder", PAYLOAD)]
    warned = [line for line in log.lines() if line["level"] == "warn"]
    assert [(line["agent_id"], "must have 5" in line["reason"]) for line in warned] == [
        ("agent-7", True)
    ]
    assert len(harness.reminders()) == 1


def test_invalid_row_is_logged_once_per_reason(harness: AgentsHarness, log: LogCapture) -> None:
    write_row(harness, "every day", "2026-01-01T00:00:00.000000Z")
    for _ in range(3):
        tick(harness)
    assert len(log.lines()) == 1
    execute(harness.ledger, "UPDATE cron_jobs SET schedule = 'every week'")
    tick(harness)
    assert len(log.lines()) == 1
    execute(harness.ledger, "UPDATE cron_jobs SET schedule = '0 0 * * *'")
    tick(harness)
    assert [line["message"] for line in log.lines()] == ["reminder fired"]


@pytest.mark.parametrize("text", ["soon", "tomorrow at 9", "2026-02-30 10:00:00", "99999"])
def test_row_whose_time_cannot_be_read_fires_and_is_logged(
    harness: AgentsHarness, log: LogCapture, text: str
) -> None:
    write_row(harness, "0 0 * * *", text)
    tick(harness)
    assert len(harness.read_notices(TOPIC)) == 1
    [row] = harness.reminders()
    assert row["next_fire_at"] == "2026-02-09T00:00:00.000000Z"
    [warned] = [line for line in log.lines() if line["level"] == "warn"]
    assert warned["message"] == "next_fire_at is not a time; due now"
    assert (warned["agent_id"], warned["reminder_id"]) == ("agent-7", row["id"])


def test_row_with_a_time_in_another_format_fires_on_time(harness: AgentsHarness) -> None:
    write_row(harness, "0 0 * * *", "2026-02-08T13:00:05+03:00")
    tick(harness)
    assert harness.read_notices(TOPIC) == []
    harness.clock.advance(5)
    tick(harness)
    assert len(harness.read_notices(TOPIC)) == 1


def test_time_in_another_format_is_normalized_while_running(harness: AgentsHarness) -> None:
    tick(harness)
    write_row(harness, "0 0 * * *", "2026-02-08T13:00:30+03:00")
    harness.clock.advance(61)
    tick(harness)
    assert len(harness.read_notices(TOPIC)) == 1


def test_loop_sleeps_until_the_next_reminder_or_poll(harness: AgentsHarness) -> None:
    assert tick(harness) == POLL_SECONDS
    harness.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert tick(harness) == 0.25
    harness.agents.reminders.schedule_once("agent-7", 86_400_000, PAYLOAD)
    harness.clock.advance(0.25)
    assert tick(harness) == POLL_SECONDS


def test_new_reminder_wakes_the_loop(harness: AgentsHarness) -> None:
    harness.agents.reminders.schedule_once("agent-7", 250, PAYLOAD)
    assert harness.woken == 1
    harness.agents.reminders.schedule_once("agent-7", 0, PAYLOAD)
    assert harness.woken == 1


def test_many_due_reminders_fire_in_pages(
    harness: AgentsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "BATCH", 7)
    for number in range(30):
        harness.agents.reminders.schedule_once("agent-7", number + 1, {"number": number})
    harness.clock.advance(1)
    tick(harness)
    assert [payload["number"] for _, payload in harness.read_notices(TOPIC)] == list(range(30))


def test_secrets_are_stored_but_not_published(harness: AgentsHarness) -> None:
    secret = "correct-horse-battery"
    node = Agents(
        harness.ledger, harness.clock, redact=Redactor([secret]).document, wake=lambda: None
    )
    node.reminders.schedule_once("agent-7", 1, {"key": secret})
    harness.clock.advance(1)
    assert harness.reminders()[0]["payload"] == {"key": secret}
    node.reminders.tick(harness.clock.now())
    assert harness.read_notices(TOPIC) == [("reminder", {"key": "[REDACTED]"})]


@pytest.mark.parametrize("payload", [None, [], "x", {"a": "x" * 70_000}])
def test_invalid_payload(harness: AgentsHarness, payload: Any) -> None:
    answer = harness.agents.reminders.schedule_once("agent-7", 1, payload)
    assert answer is ScheduleError.INVALID_PAYLOAD
