"""When rows that scripts write too are due, whatever they have written there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TypeVar

from ductile.clock import moment_of, to_text
from ductile.store.engines.api import Row, Tx

AT_ONCE = 500
LONG_AGO = datetime.min.replace(tzinfo=UTC)

Id = TypeVar("Id", int, str)


def moment(text: object) -> datetime:
    """The time that this is; one that is none is long past."""
    return moment_of(text) or LONG_AGO


def unread(first: Row | None) -> list[Row]:
    """The first row in our form, an id and its time, where that is a day or an hour that there
    is not."""
    return [first] if first is not None and moment_of(first[1]) is None else []


def mend(
    tx: Tx, ids: Sequence[Id], now: datetime, *, read: str, write: str
) -> dict[Id, datetime | None]:
    """Write the times of these rows in our form, so that their text order is time order.

    `read` and `write` are the queries of one row's time. Without a time it is due now; so is
    one whose time is None here, for it could not be read.
    """
    mended: dict[Id, datetime | None] = {}
    for id in ids:
        try:
            row = tx.one(read, id=id)
        except UnicodeDecodeError:
            row = (b"",)
        if row is None:
            # It has ended meanwhile, or somebody is at it.
            continue
        mended[id] = due = now if row[0] is None else moment_of(row[0])
        tx.run(write, id=id, next_retry_at=to_text(due or now))
    return mended
