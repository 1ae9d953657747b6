"""The event stream for operators: each notice commits with the change that it reports."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from ductile.clock import moment_of, to_text
from ductile.core.jobs.limits import fitting
from ductile.model import Job, Json, Notice
from ductile.store.engines.api import BEGINNING, Position, StoredNotice, Tx

TOPICS = (
    "jobs",
    "pipelines",
    "approvals",
    "events",
    "breakers",
    "flow",
    "relay",
    "alerts",
    "gateway:messages",
    "gateway:violations",
    "gateway:capabilities",
    "gateway:webhooks",
)
TOPIC_PREFIXES = ("agent:", "session:")
"""The topics of one agent and of one session: `agent:ID:scheduled`, `session:ID`."""
LONGEST_TRANSACTION = 10.0
"""Seconds for which a session may hold back the stream without being named."""


def is_topic(name: str) -> bool:
    """Whether notices may have this topic."""
    return name in TOPICS or name.startswith(TOPIC_PREFIXES)


def post(
    tx: Tx, notice: Notice, now: datetime, *, job_id: str | None = None, plugin: str | None = None
) -> None:
    """Store a notice, to be announced when this transaction is durable."""
    tx.post(_without_id(notice, now, job_id), plugin)


def post_job(tx: Tx, job: Job, type: str, now: datetime, **fields: Json) -> None:
    """As `post`, a notice about a job, which it names before these fields."""
    named = {"job_id": job.id, "plugin": job.plugin, "command": job.command, **fields}
    post(tx, Notice("jobs", type, named), now, job_id=job.id, plugin=job.plugin)


def post_with_id(tx: Tx, notice: Notice, now: datetime) -> int:
    """As `post`, and return the notice's id, for which the row has to be written at once."""
    stored = _without_id(notice, now, None)
    id = tx.insert("insert_notice", **stored.insert_values(None))
    tx.effects.notices.append(stored._replace(id=id))
    return id


def _without_id(notice: Notice, now: datetime, job_id: str | None) -> StoredNotice:
    payload = orjson.dumps(notice.payload).decode()
    return StoredNotice(0, notice.topic, notice.type, job_id, payload, to_text(now))


def list_after(
    tx: Tx, position: Position, limit: int = 1000, max_bytes: int | None = None
) -> list[StoredNotice]:
    """The notices after `position` in the order of the stream, at most `max_bytes` of them."""
    start = {"xact": position.xact, "after": position.id}
    if max_bytes is not None:
        sizes = tx.all("notice_sizes", **start, limit=limit)
        limit = fitting((size for (size,) in sizes), max_bytes)
    rows = tx.all("notices_after", **start, limit=limit)
    return [StoredNotice(*row) for row in rows]


def last_position(tx: Tx, skipped: int = 0) -> Position:
    """The position of the last notice, or of the one `skipped` before it; else the beginning."""
    row = tx.one("notices_before_last", skipped=skipped)
    return Position(*row) if row else BEGINNING


def has_held_back(tx: Tx) -> bool:
    """Whether some have no final position before an older transaction has ended."""
    return tx.one("notices_held") is not None


def list_holders(tx: Tx) -> list[dict[str, Any]]:
    """The sessions whose open transaction holds back later notices, the oldest first."""
    return tx.dicts("stream_holders")


def newest_time(tx: Tx) -> datetime | None:
    """When the newest notice was written; None if there is none, or its time cannot be read."""
    row = tx.one("newest_notice")
    return None if row is None else moment_of(row[0])
