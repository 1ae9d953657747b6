"""The operator's stream: rows that commit with what they tell of."""

from __future__ import annotations

from datetime import datetime

import orjson

from ductile.clock import to_text
from ductile.model import Notice
from ductile.store.ledger import StoredNotice, Tx


def post(
    tx: Tx, notice: Notice, now: datetime, *, job_id: str | None = None, plugin: str | None = None
) -> int:
    """Record a notice, and have it announced once this transaction is durable; its id."""
    payload = orjson.dumps(notice.payload).decode()
    at = to_text(now)
    row = tx.one(
        "insert_notice",
        topic=notice.topic,
        type=notice.type,
        job_id=job_id,
        plugin=plugin,
        payload=payload,
        now=at,
    )
    assert row is not None
    tx.effects.notices.append(StoredNotice(row[0], notice.topic, notice.type, job_id, payload, at))
    id: int = row[0]
    return id


def after(tx: Tx, cursor: int, limit: int = 1000) -> list[StoredNotice]:
    return [StoredNotice(*row) for row in tx.all("notices_after", after=cursor, limit=limit)]
