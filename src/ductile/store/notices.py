"""The operator's stream: rows that commit with what they tell of."""

from __future__ import annotations

from datetime import datetime

import orjson

from ductile.clock import to_text
from ductile.core.jobs.limits import fitting
from ductile.model import Notice
from ductile.store.engines.api import BEGINNING, Position, StoredNotice, Tx


def post(
    tx: Tx, notice: Notice, now: datetime, *, job_id: str | None = None, plugin: str | None = None
) -> int:
    """Record a notice, and have it announced once this transaction is durable; its id."""
    payload = orjson.dumps(notice.payload).decode()
    at = to_text(now)
    id = tx.insert(
        "insert_notice",
        topic=notice.topic,
        type=notice.type,
        job_id=job_id,
        plugin=plugin,
        payload=payload,
        now=at,
    )
    tx.effects.notices.append(StoredNotice(id, notice.topic, notice.type, job_id, payload, at))
    return id


def after(
    tx: Tx, position: Position, limit: int = 1000, room: int | None = None
) -> list[StoredNotice]:
    """What stands behind `position`, in the order of the stream; no more bytes than `room`."""
    place = {"xact": position.xact, "after": position.id}
    if room is not None:
        limit = fitting((size for (size,) in tx.all("notice_sizes", **place, limit=limit)), room)
    rows = tx.all("notices_after", **place, limit=limit)
    return [StoredNotice(*row) for row in rows]


def last(tx: Tx, skipped: int = 0) -> Position:
    """Where the last notice stands, or the one so many before it; nowhere is the beginning."""
    row = tx.one("notices_before_last", skipped=skipped)
    return Position(*row) if row else BEGINNING


def held(tx: Tx) -> bool:
    """Whether some have to wait for an older transaction to end, before their place is known."""
    return tx.one("notices_held") is not None
