"""The time at which an outbox row is due, in whatever format a script has written it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

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
