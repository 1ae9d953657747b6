"""Rows of `waits`: what each step waits for, and which are due."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import NamedTuple

import orjson

from ductile.clock import from_text, to_text
from ductile.core.waits.begin import describe_wait
from ductile.core.waits.decision import OpenWait, WaitStatus
from ductile.store.engines.api import Tx


class WaitRow(NamedTuple):
    """The columns of the query `wait_columns`."""

    id: str
    job_id: str
    attempt: int
    kind: str
    pipeline: str
    step_path: str
    title: str
    description: str
    event_type: str | None
    condition: str | None
    on_timeout: str
    created_at: str
    due_at: str | None
    status: str
    ended_at: str | None
    ended_by: str | None
    comment: str | None
    decided: str | None = None
    """How it ends, once a node has decided that does not know its pipeline; see `decode_end`."""

    def __str__(self) -> str:
        due = None if self.due_at is None else from_text(self.due_at)
        return describe_wait(self.kind, self.title, self.event_type, due)

    @property
    def open_wait(self) -> OpenWait:
        """What the decision about its end needs."""
        return OpenWait(
            self.id,
            self.kind,
            from_text(self.created_at),
            self.title,
            self.event_type,
            self.on_timeout,
        )


def find_wait(tx: Tx, wait_id: str) -> WaitRow | None:
    return _first(tx, "wait", id=wait_id)


def find_open_wait(tx: Tx, job_id: str) -> WaitRow | None:
    """The wait of a parked job; None if the job does not wait."""
    return _first(tx, "open_wait_of_job", job_id=job_id)


def find_by_token(tx: Tx, token_hash: str) -> WaitRow | None:
    return _first(tx, "wait_of_token", token_hash=token_hash)


def list_due(tx: Tx, now: datetime, limit: int, foreign: Collection[str] = ()) -> list[WaitRow]:
    """The waits that are due, except those of `foreign` pipelines, which other nodes end."""
    values = {"now": to_text(now), "limit": limit, "paused": orjson.dumps(list(foreign)).decode()}
    return [WaitRow(*row) for row in tx.all("due_waits", **values)]


def next_due_at(tx: Tx, foreign: Collection[str] = ()) -> datetime | None:
    """When the next wait ends by time; None if no wait does."""
    row = tx.one("next_due_wait", paused=orjson.dumps(list(foreign)).decode())
    return None if row is None or row[0] is None else from_text(row[0])


def _first(tx: Tx, query: str, **values: object) -> WaitRow | None:
    row = tx.one(query, **values)
    return None if row is None else WaitRow(*row)


def list_open(tx: Tx, job_ids: Sequence[str]) -> list[WaitRow]:
    """The open waits of these jobs."""
    ids = orjson.dumps(list(job_ids)).decode()
    return [WaitRow(*row) for row in tx.all("open_waits_of_jobs", ids=ids)] if job_ids else []


def list_of_job(tx: Tx, job_id: str) -> list[WaitRow]:
    """All waits of a job, the oldest first: a retried step waits again."""
    return [WaitRow(*row) for row in tx.all("waits_of_job", job_id=job_id)]


def list_approvals(
    tx: Tx,
    *,
    status: str | None,
    pipeline: str | None,
    before: str | None,
    before_id: str | None,
    limit: int,
) -> list[WaitRow]:
    """Approvals, newest first, before the row that a cursor names."""
    filters = {"pipeline": pipeline, "before": before, "before_id": before_id, "limit": limit}
    if status == WaitStatus.WAITING:
        return [WaitRow(*row) for row in tx.all("waiting_approvals", **filters)]
    return [WaitRow(*row) for row in tx.all("approvals", status=status, **filters)]


def find_approval_ids(tx: Tx, prefix: str, limit: int) -> list[str]:
    """The first ids of approvals with this prefix."""
    values = {"prefix": prefix, "beyond": f"{prefix}\U0010ffff", "limit": limit}
    return [id for (id,) in tx.all("approval_ids_with_prefix", **values)]


def find_instance_ids(tx: Tx, rows: Sequence[WaitRow]) -> dict[str, str]:
    """The pipeline runs that wait, by job; without those whose job is past its retention."""
    ids = orjson.dumps([row.job_id for row in rows]).decode()
    return dict(tx.all("instances_of_jobs", ids=ids)) if rows else {}
