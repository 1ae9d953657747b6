"""Reminders: a fire, and the row's end or its next time, are one transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from ductile.clock import from_text, moment_of, to_text
from ductile.core.agents import reminder as core
from ductile.core.agents.reminder import FireLater, FireNow, NewReminder, ScheduleError
from ductile.core.jobs.limits import document, fitting
from ductile.core.values.json_values import Failure
from ductile.model import Json, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Row, Tx

MOST = 100_000
AT_ONCE = 100
LONG_AGO = "0001-01-01"


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A reminder that is kept."""

    id: int
    agent_id: str
    schedule: str | None
    next_fire_at: str


@dataclass(frozen=True, slots=True)
class Flawed:
    """A row that cannot be fired, and why."""

    id: int
    agent_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Page:
    """What became of some rows that were due, and where the next begin; None after the last."""

    fired: tuple[tuple[int, str], ...]
    """Ids, each with its agent's."""
    flawed: tuple[Flawed, ...]
    behind: tuple[str, int] | None


def add(tx: Tx, new: NewReminder) -> Scheduled | ScheduleError:
    if tx.one("reminders_are_full", most=MOST - 1) is not None:
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
    return Scheduled(row[0], new.agent_id, new.schedule, at)


def fire_due(
    tx: Tx, now: datetime, redact: Callable[[Json], Json], behind: tuple[str, int] = ("", 0)
) -> Page:
    """Fire some rows that are due, those that stand behind `behind`.

    Each write is guarded by the time that was read: whichever node is first fires it, and no
    other does.
    """
    rows = tx.all(
        "due_reminders", now=to_text(now), fired_at=behind[0], id=behind[1], limit=AT_ONCE
    )
    fired, flawed = [], []
    for row in rows:
        judged = core.judge_reminder(row[3], row[2], is_one_time=bool(row[5]), now=now)
        if isinstance(judged, Failure):
            flawed.append(Flawed(row[0], row[1], judged.reason))
        elif isinstance(judged, FireLater):
            _move(tx, row, judged.at)
        elif _done(tx, row, judged):
            payload = redact(_told(row[4]))
            notices.post(tx, Notice(core.build_topic(row[1]), "reminder", payload), now)
            fired.append((row[0], row[1]))
    last = (rows[-1][3], rows[-1][0]) if len(rows) == AT_ONCE else None
    return Page(tuple(fired), tuple(flawed), last)


def _told(text: str) -> Json:
    """What a notice says of it: an object, also where a script wrote another payload."""
    payload = document(text)
    return payload if isinstance(payload, dict) else {"payload": payload}


def _done(tx: Tx, row: Row, due: FireNow) -> bool:
    if due.then is not None:
        return _move(tx, row, due.then)
    return bool(tx.run("delete_fired_reminder", id=row[0], next_fire_at=row[3]))


def _move(tx: Tx, row: Row, then: datetime) -> bool:
    return bool(tx.run("move_reminder", id=row[0], next_fire_at=row[3], then=to_text(then)))


def first(tx: Tx, after: datetime | None = None) -> datetime | None:
    """When the next one is due, of all or of those after that; one that is no time is now."""
    row = tx.one("first_reminder", after="" if after is None else to_text(after))
    if row is None or row[0] is None:
        return None
    return moment_of(row[0]) or from_text(LONG_AGO)


def has_odd(tx: Tx) -> bool:
    return bool(tx.all("odd_reminders", after=0, limit=1))


def straighten(tx: Tx) -> int:
    """Write times that others wrote in another form as ours; how many there were.

    Only so do all of them sort by time. One that cannot be read stays: it is told when it
    seems due.
    """
    moved = after = 0
    while rows := tx.all("odd_reminders", after=after, limit=AT_ONCE):
        for id, text in rows:
            at = moment_of(text)
            if at is not None:
                moved += tx.run("move_reminder", id=id, next_fire_at=text, then=to_text(at))
        after = rows[-1][0]
    return moved


@dataclass(frozen=True, slots=True)
class Late:
    """A row that waits for longer than its rule says."""

    id: int
    next_fire_at: str
    then: datetime


def late_by_rule(tx: Tx, now: datetime, behind: int = 0) -> tuple[list[Late], int | None]:
    """Some recurring rows that wait for too long, and the id that the next stand behind."""
    rows = tx.all("recurring_reminders", after=behind, now=to_text(now), limit=AT_ONCE)
    found = [
        Late(id, at, then)
        for id, rule, at in rows
        if (then := core.find_earlier_fire(at, rule, now))
    ]
    return found, rows[-1][0] if len(rows) == AT_ONCE else None


def move(tx: Tx, late: list[Late]) -> int:
    """Have them come by their rule, unless somebody was first; how many do."""
    return sum(
        tx.run("move_reminder", id=row.id, next_fire_at=row.next_fire_at, then=to_text(row.then))
        for row in late
    )


def listing(
    tx: Tx,
    *,
    agent_id: str | None = None,
    after: int = 0,
    limit: int = AT_ONCE,
    payloads: bool = True,
) -> list[dict[str, Any]]:
    """By id; a payload that is not asked for is None."""
    rows = tx.dicts("reminders", agent_id=agent_id, after=after, limit=limit, payloads=payloads)
    return [_reminder(row) for row in rows]


def page(
    tx: Tx, *, agent_id: str | None, after: int, limit: int, room: int
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of no more bytes than `room`, and the id that the next one goes on behind."""
    place = {"agent_id": agent_id, "after": after}
    sizes = [size for (size,) in tx.all("reminder_sizes", **place, limit=limit)]
    count = fitting(sizes, room)
    rows = listing(tx, agent_id=agent_id, after=after, limit=count)
    return rows, rows[-1]["id"] if rows and (count == limit or count < len(sizes)) else None


def find(tx: Tx, id: int) -> dict[str, Any] | None:
    rows = tx.dicts("reminder", id=id)
    return _reminder(rows[0]) if rows else None


def forget(tx: Tx, id: int) -> dict[str, Any] | None:
    """Delete one; what it was, None where there is none any more."""
    found = find(tx, id)
    return found if found is not None and tx.run("delete_reminder", id=id) else None


def _reminder(row: dict[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "payload": document(row["payload"]),
        "is_one_time": bool(row["is_one_time"]),
    }
