"""Reminders: the notice, and the deletion or next time of its row, are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, moment_of, to_text
from ductile.core.agents import reminder as core
from ductile.core.agents.reminder import FireLater, FireNow, NewReminder, ScheduleError
from ductile.core.jobs.limits import document, fitting
from ductile.core.values.json_values import Failure
from ductile.model import Json, Notice
from ductile.store import notices
from ductile.store.engines.api import Row, Tx

MAX_REMINDERS = 100_000
BATCH = 100
LONG_AGO = "0001-01-01"


@dataclass(frozen=True, slots=True)
class ScheduledReminder:
    """A reminder that is stored."""

    id: int
    agent_id: str
    schedule: str | None
    next_fire_at: str


@dataclass(frozen=True, slots=True)
class UnreadableReminder:
    """A row that cannot be fired, and why."""

    id: int
    agent_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class FiredReminders:
    """The result of one batch of due rows."""

    fired: tuple[tuple[int, str], ...]
    """The ids of the reminder and of its agent."""
    unreadable: tuple[UnreadableReminder, ...]
    next_after: tuple[str, int] | None
    """Where the next batch continues; None after the last."""


def add_reminder(tx: Tx, new: NewReminder) -> ScheduledReminder | ScheduleError:
    if tx.one("reminders_are_full", most=MAX_REMINDERS - 1) is not None:
        return ScheduleError.TOO_MANY
    at = to_text(new.next_fire_at)
    row = tx.one(
        "insert_reminder",
        agent_id=new.agent_id,
        schedule=new.schedule,
        next_fire_at=at,
        payload=new.payload,
        is_one_time=new.schedule is None,
    )
    assert row is not None
    return ScheduledReminder(row[0], new.agent_id, new.schedule, at)


def fire_due(
    tx: Tx, now: datetime, redact: Callable[[Json], Json], after: tuple[str, int] = ("", 0)
) -> FiredReminders:
    """Fire a batch of the rows that are due, those after the position `after`.

    Each write is guarded by the time that was read, so that only one node fires a row.
    """
    rows = tx.all("due_reminders", now=to_text(now), fired_at=after[0], id=after[1], limit=BATCH)
    fired, unreadable = [], []
    for row in rows:
        judged = core.judge_reminder(row[3], row[2], is_one_time=bool(row[5]), now=now)
        if isinstance(judged, Failure):
            unreadable.append(UnreadableReminder(row[0], row[1], judged.reason))
        elif isinstance(judged, FireLater):
            _reschedule(tx, row, judged.at)
        elif _finish_fire(tx, row, judged):
            payload = redact(_notice_payload(row[4]))
            notices.post(tx, Notice(core.build_topic(row[1]), "reminder", payload), now)
            fired.append((row[0], row[1]))
    last = (rows[-1][3], rows[-1][0]) if len(rows) == BATCH else None
    return FiredReminders(tuple(fired), tuple(unreadable), last)


def _notice_payload(text: str) -> Json:
    """Always an object, even if a script has stored another payload."""
    payload = document(text)
    return payload if isinstance(payload, dict) else {"payload": payload}


def _finish_fire(tx: Tx, row: Row, due: FireNow) -> bool:
    """Delete or reschedule the row; False if another node has fired it."""
    if due.then is not None:
        return _reschedule(tx, row, due.then)
    return bool(tx.run("delete_fired_reminder", id=row[0], next_fire_at=row[3]))


def _reschedule(tx: Tx, row: Row, then: datetime) -> bool:
    return bool(tx.run("move_reminder", id=row[0], next_fire_at=row[3], then=to_text(then)))


def next_fire_at(tx: Tx, after: datetime | None = None) -> datetime | None:
    """When the next reminder, or the next one after `after`, is due.

    A time that cannot be read counts as due now.
    """
    row = tx.one("first_reminder", after="" if after is None else to_text(after))
    if row is None or row[0] is None:
        return None
    return moment_of(row[0]) or from_text(LONG_AGO)


def has_foreign_time(tx: Tx) -> bool:
    """Whether a row has a time that is not in the ledger's format."""
    return bool(tx.all("foreign_reminder_times", after=0, limit=1))


def normalize_times(tx: Tx, now: datetime) -> list[tuple[int, str]]:
    """Rewrite such times in the ledger's format, so that they sort by time.

    A time that cannot be read becomes `now`; returns these rows, with the ids of their agents.
    """
    unreadable: list[tuple[int, str]] = []
    after = 0
    while rows := tx.all("foreign_reminder_times", after=after, limit=BATCH):
        for id, agent_id, text in rows:
            at = moment_of(text)
            tx.run("move_reminder", id=id, next_fire_at=text, then=to_text(at or now))
            if at is None:
                unreadable.append((id, agent_id))
        after = rows[-1][0]
    return unreadable


@dataclass(frozen=True, slots=True)
class DelayedReminder:
    """A row whose next time is later than its rule says."""

    id: int
    next_fire_at: str
    then: datetime


def list_delayed(tx: Tx, now: datetime, after: int = 0) -> tuple[list[DelayedReminder], int | None]:
    """The delayed ones of a batch of recurring rows, and the id after which the next continues."""
    rows = tx.all("recurring_reminders", after=after, now=to_text(now), limit=BATCH)
    found = [
        DelayedReminder(id, at, then)
        for id, rule, at in rows
        if (then := core.find_earlier_fire(at, rule, now))
    ]
    return found, rows[-1][0] if len(rows) == BATCH else None


def reschedule_delayed(tx: Tx, delayed: list[DelayedReminder]) -> int:
    """Set their next time by their rule, unless it has changed since; returns how many."""
    return sum(
        tx.run("move_reminder", id=row.id, next_fire_at=row.next_fire_at, then=to_text(row.then))
        for row in delayed
    )


def list_reminders(
    tx: Tx,
    *,
    agent_id: str | None = None,
    after: int = 0,
    limit: int = BATCH,
    payloads: bool = True,
) -> list[dict[str, Any]]:
    """The reminders by id; without `payloads` each payload is None."""
    rows = tx.dicts("reminders", agent_id=agent_id, after=after, limit=limit, payloads=payloads)
    return [_parse_reminder(row) for row in rows]


def list_page(
    tx: Tx, *, agent_id: str | None, after: int, limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of at most `max_bytes`, and the id after which the next one continues."""
    # One more than the page has, to know whether another page follows.
    sizes = tx.all("reminder_sizes", agent_id=agent_id, after=after, limit=limit + 1)
    count = fitting([size for (size,) in sizes[:limit]], max_bytes)
    rows = list_reminders(tx, agent_id=agent_id, after=after, limit=count)
    return rows, rows[-1]["id"] if rows and count < len(sizes) else None


def find_reminder(tx: Tx, id: int) -> dict[str, Any] | None:
    rows = tx.dicts("reminder", id=id)
    return _parse_reminder(rows[0]) if rows else None


def delete_reminder(tx: Tx, id: int) -> dict[str, Any] | None:
    """Delete a reminder and return it; None if there is none with this id."""
    found = find_reminder(tx, id)
    return found if found is not None and tx.run("delete_reminder", id=id) else None


def _parse_reminder(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "payload": document(row["payload"]),
        "is_one_time": bool(row["is_one_time"]),
    }
