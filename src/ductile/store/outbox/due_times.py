"""The times at which rows are due: outbox rows in whatever format a script has written them, and
all that wait for a delay when the clock was set back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.store.engines.api import Row, Tx

BATCH = 500
LONG_AGO = datetime.min.replace(tzinfo=UTC)

Id = TypeVar("Id", int, str)


def parse_due_time(text: object) -> datetime:
    """The time; one that cannot be read is long past."""
    return moment_of(text) or LONG_AGO


def unreadable_first(first: Row | None) -> list[Row]:
    """The first row (id, time) in our format, if its time does not exist; else nothing."""
    return [first] if first is not None and moment_of(first[1]) is None else []


def normalize_due_times(
    tx: Tx, ids: Sequence[Id], now: datetime, *, read: str, write: str
) -> dict[Id, datetime | None]:
    """Rewrite the times of these rows in our format, so that their text order is time order.

    `read` and `write` are the queries for one row's time. A row without a time is due now, and so
    is a row whose time could not be read, which is None in the result.
    """
    changed: dict[Id, datetime | None] = {}
    for id in ids:
        try:
            row = tx.one(read, id=id)
        except UnicodeDecodeError:
            row = (b"",)
        if row is None:
            # It has been settled since, or is being sent.
            continue
        changed[id] = due = now if row[0] is None else moment_of(row[0])
        tx.run(write, id=id, next_retry_at=to_text(due or now))
    return changed


@dataclass(frozen=True, slots=True)
class Delayed:
    """A kind of row that waits for a delay, with its queries and the cursor before the first id."""

    noun: str
    read: str
    write: str
    first: int | str


DELAYED = (
    Delayed("retries", "later_retries", "move_retry", ""),
    Delayed("reminders", "later_reminders", "move_one_time_reminder", 0),
    Delayed("deliveries", "later_deliveries", "move_delivery", 0),
    Delayed("relays", "later_relays", "move_relay", ""),
    Delayed("waits", "later_waits", "move_wait", ""),
    Delayed("closed limit keys", "later_closed_keys", "move_closed_key", "/"),
    Delayed("rates", "later_rates", "move_rate", "/"),
)


def move_due_times(
    tx: Tx, kind: Delayed, after: int | str, earlier: timedelta, now: datetime
) -> tuple[int, int | str | None]:
    """Make a batch of rows that are due after `now` due `earlier`, because the clock was set back.

    Returns how many were moved, and the cursor of the next batch; None after the last.
    """
    rows = tx.all(kind.read, now=to_text(now), after=after, limit=BATCH)
    moved = 0
    for id, text in rows:
        due = moment_of(text)
        if due is not None:
            # Not before `now`, where a date before the first year could be needed.
            then = max(due - earlier, now)
            moved += tx.run(kind.write, id=id, before=text, then=to_text(then))
    return moved, rows[-1][0] if len(rows) == BATCH else None
