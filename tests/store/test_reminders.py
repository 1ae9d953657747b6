"""Reminders fire once: the notice and the change of the row are one commit; on both engines."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.core.agents.reminder import NewReminder, ScheduleError, build_once, build_recurring
from ductile.store import notices, reminders
from ductile.store.engines.api import BEGINNING, Ledger
from ductile.store.reminders import FiredReminders, ScheduledReminder
from tests.conftest import FakeClock
from tests.store.conftest import execute


class ReminderHarness:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock

    def once(
        self, delay_ms: int = 5000, payload: Any = None, agent: str = "a"
    ) -> ScheduledReminder:
        return self._add(build_once(agent, delay_ms, payload or {"n": 1}, self.clock.now()))

    def recurring(self, rule: str = "0 * * * *") -> ScheduledReminder:
        return self._add(build_recurring("a", rule, {"n": 1}, self.clock.now()))

    def _add(self, new: NewReminder | ScheduleError) -> ScheduledReminder:
        assert isinstance(new, NewReminder)
        kept = self.ledger.write(lambda tx: reminders.add_reminder(tx, new))
        assert isinstance(kept, ScheduledReminder)
        return kept

    def script(self, next_fire_at: str, schedule: str | None = None, *, once: bool = True) -> None:
        """Insert a row as a script would."""
        rule = "NULL" if schedule is None else f"'{schedule}'"
        execute(
            self.ledger,
            "INSERT INTO cron_jobs (agent_id, schedule, next_fire_at, payload, is_one_time)"
            f" VALUES ('a', {rule}, '{next_fire_at}', '{{}}', {str(once).upper()})",
        )

    def fire(self) -> FiredReminders:
        now = self.clock.now()
        return self.ledger.write(lambda tx: reminders.fire_due(tx, now, lambda value: value))

    def rows(self) -> list[dict[str, Any]]:
        return self.ledger.read(reminders.list_reminders)

    def published(self) -> list[tuple[str, Any]]:
        found = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING, 10_000))
        return [(notice.topic, json.loads(notice.payload)) for notice in found]

    def first(self, after: datetime | None = None) -> datetime | None:
        return self.ledger.read(lambda tx: reminders.next_fire_at(tx, after))


@pytest.fixture
def harness(ledger: Ledger, clock: FakeClock) -> ReminderHarness:
    return ReminderHarness(ledger, clock)


def test_reminder_that_is_not_due_stays(harness: ReminderHarness) -> None:
    harness.once(5000)
    harness.clock.advance(4.999)
    assert harness.fire() == FiredReminders((), (), None)
    assert harness.published() == []
    assert len(harness.rows()) == 1


def test_one_time_reminder_fires_and_is_deleted(harness: ReminderHarness) -> None:
    kept = harness.once(5000, {"reminder": "check_quota"}, "agent-7")
    assert harness.rows()[0] == {
        "id": kept.id,
        "agent_id": "agent-7",
        "schedule": None,
        "next_fire_at": to_text(harness.clock.now() + timedelta(seconds=5)),
        "payload": {"reminder": "check_quota"},
        "is_one_time": True,
    }
    harness.clock.advance(5)
    assert harness.fire().fired == ((kept.id, "agent-7"),)
    assert harness.published() == [("agent:agent-7:scheduled", {"reminder": "check_quota"})]
    assert harness.rows() == []
    assert harness.fire().fired == ()


def test_late_recurring_reminder_fires_once(harness: ReminderHarness) -> None:
    harness.recurring("0 * * * *")
    harness.clock.advance(5 * 3600 + 60)
    assert len(harness.fire().fired) == 1
    (row,) = harness.rows()
    assert row["next_fire_at"] == "2026-02-08T16:00:00.000000Z"
    assert row["is_one_time"] is False
    assert harness.fire().fired == ()


def test_unreadable_reminder_does_not_block_others(harness: ReminderHarness) -> None:
    past = to_text(harness.clock.now() - timedelta(hours=1))
    for rule in ("nonsense", "0 0 30 2 *", None):
        harness.script(past, rule, once=False)
    harness.once(1)
    harness.clock.advance(1)
    page = harness.fire()
    assert len(page.fired) == 1
    assert len(page.unreadable) == 3
    assert len(harness.rows()) == 3


def test_batches_continue_after_unreadable_reminders(
    harness: ReminderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "BATCH", 2)
    past = to_text(harness.clock.now() - timedelta(hours=1))
    for _ in range(4):
        harness.script(past, "nonsense", once=False)
    harness.once(1)
    harness.clock.advance(1)
    now, behind, fired = harness.clock.now(), ("", 0), 0
    for _ in range(3):
        page = harness.ledger.write(
            lambda tx, behind=behind: reminders.fire_due(tx, now, lambda value: value, behind)
        )
        fired += len(page.fired)
        if page.next_after is None:
            break
        behind = page.next_after
    assert fired == 1
    assert page.next_after is None


def test_time_of_a_reminder_in_another_format_is_normalized(harness: ReminderHarness) -> None:
    harness.script("2026-02-08 10:00:05")
    harness.script("2026-02-08T12:00:05+02:00")
    harness.script("soon")
    assert harness.ledger.read(reminders.has_foreign_time)
    now = harness.clock.now()
    unreadable = harness.ledger.write(lambda tx: reminders.normalize_times(tx, now))
    rows = harness.rows()
    assert [id for id, _ in unreadable] == [rows[2]["id"]]
    times = [row["next_fire_at"] for row in rows]
    assert times == ["2026-02-08T10:00:05.000000Z"] * 2 + [to_text(now)]
    assert not harness.ledger.read(reminders.has_foreign_time)


def test_time_that_only_sorts_as_due_does_not_fire(harness: ReminderHarness) -> None:
    harness.script("2026-02-08 23:00:00")
    assert harness.fire() == FiredReminders((), (), None)
    assert harness.rows()[0]["next_fire_at"] == "2026-02-08T23:00:00.000000Z"


def test_payload_that_is_not_json_is_sent_as_text(harness: ReminderHarness) -> None:
    execute(
        harness.ledger,
        "INSERT INTO cron_jobs (agent_id, next_fire_at, payload, is_one_time)"
        " VALUES ('a', '2026-02-08T00:00:00.000000Z', 'water the plants', TRUE)",
    )
    assert len(harness.fire().fired) == 1
    assert harness.published() == [("agent:a:scheduled", {"payload": "water the plants"})]


def test_row_is_recurring_by_default(harness: ReminderHarness) -> None:
    execute(
        harness.ledger,
        "INSERT INTO cron_jobs (agent_id, schedule, next_fire_at, payload)"
        " VALUES ('a', '0 * * * *', '2026-02-08T00:00:00.000000Z', '{}')",
    )
    assert len(harness.fire().fired) == 1
    assert harness.rows()[0]["next_fire_at"] == "2026-02-08T11:00:00.000000Z"


def test_next_fire_time(harness: ReminderHarness) -> None:
    assert harness.first() is None
    harness.once(5000)
    harness.once(1000)
    now = harness.clock.now()
    assert harness.first() == now + timedelta(seconds=1)
    assert harness.first(now + timedelta(seconds=1)) == now + timedelta(seconds=5)


def test_number_of_reminders_is_limited(
    harness: ReminderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "MAX_REMINDERS", 2)
    harness.once()
    harness.once()
    new = build_once("a", 1, {}, harness.clock.now())
    assert isinstance(new, NewReminder)
    assert (
        harness.ledger.write(lambda tx: reminders.add_reminder(tx, new)) is ScheduleError.TOO_MANY
    )
    assert len(harness.rows()) == 2


def test_reminder_is_deleted_once(harness: ReminderHarness) -> None:
    kept = harness.once()
    forgotten = harness.ledger.write(lambda tx: reminders.delete_reminder(tx, kept.id))
    assert forgotten is not None
    assert forgotten["id"] == kept.id
    assert harness.ledger.write(lambda tx: reminders.delete_reminder(tx, kept.id)) is None


def test_reminder_id_is_never_reused(harness: ReminderHarness) -> None:
    first = harness.once()
    harness.ledger.write(lambda tx: reminders.delete_reminder(tx, first.id))
    assert harness.once().id > first.id


def test_reminders_of_an_agent_are_paged(harness: ReminderHarness) -> None:
    ids = [harness.once(agent=agent).id for agent in ("a", "b", "a", "a")]
    found = harness.ledger.read(lambda tx: reminders.list_reminders(tx, agent_id="a", limit=2))
    assert [row["id"] for row in found] == [ids[0], ids[2]]
    more = harness.ledger.read(lambda tx: reminders.list_reminders(tx, agent_id="a", after=ids[2]))
    assert [row["id"] for row in more] == [ids[3]]


def test_two_nodes_never_fire_a_reminder_twice(
    open_ledger: Callable[[], Ledger], clock: FakeClock
) -> None:
    first = ReminderHarness(open_ledger(), clock)
    # Both threads share the one writer of SQLite; on PostgreSQL they are two nodes.
    other = ReminderHarness(open_ledger(), clock) if first.ledger.engine == "postgres" else first
    for number in range(60):
        first.once(1, {"number": number})
    first.recurring("0 10 * * *")
    clock.advance(86_400)
    threads = [
        threading.Thread(target=harness.fire) for harness in (first, other) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    published = first.published()
    assert len(published) == 61
    assert sorted(p["number"] for _, p in published if "number" in p) == list(range(60))
    assert len(first.rows()) == 1


def test_reminders_delayed_by_a_fast_clock_are_rescheduled(harness: ReminderHarness) -> None:
    kept = harness.recurring("0 11 * * *")
    for _ in range(reminders.BATCH):
        harness.script("2031-02-08T11:00:00.000000Z", "0 11 * * *", once=False)
    harness.script("2031-02-08T11:00:00.000000Z", once=True)
    now, behind, moved = harness.clock.now(), 0, 0
    while behind is not None:
        look = partial(reminders.list_delayed, now=now, after=behind)
        late, behind = harness.ledger.read(look)
        moved += harness.ledger.write(lambda tx, late=late: reminders.reschedule_delayed(tx, late))
    assert moved == reminders.BATCH
    rows = harness.ledger.read(lambda tx: reminders.list_reminders(tx, limit=1000))
    assert {row["next_fire_at"] for row in rows if not row["is_one_time"]} == {kept.next_fire_at}
    assert [row["next_fire_at"][:4] for row in rows if row["is_one_time"]] == ["2031"]


def test_reminder_fired_meanwhile_is_not_rescheduled(harness: ReminderHarness) -> None:
    harness.script("2031-02-08T11:00:00.000000Z", "0 11 * * *", once=False)
    now = harness.clock.now()
    late, _ = harness.ledger.read(lambda tx: reminders.list_delayed(tx, now))
    assert harness.ledger.write(lambda tx: reminders.reschedule_delayed(tx, late)) == 1
    assert harness.ledger.write(lambda tx: reminders.reschedule_delayed(tx, late)) == 0
