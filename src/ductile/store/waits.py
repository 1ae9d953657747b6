"""Rows of `waits`, and the parked jobs that they belong to.

The job of a step that waits is `queued` with a retry time that never comes, so no claim takes it
and its scope stays open. The transaction that ends the wait changes the row of the job first: that
is the one compare-and-set, so a decision, an event, a timer and a cancellation cannot all succeed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ductile.clock import from_text, to_text
from ductile.core.jobs.state_machine import edges
from ductile.core.waits.announce import describe_end
from ductile.core.waits.begin import NewWait, describe_wait, is_matched
from ductile.core.waits.decision import OpenWait, WaitEnd, WaitStatus
from ductile.core.waits.parse import WaitKind
from ductile.model import Event, Job, JobStatus, Json, Notice, Settlement
from ductile.store import nodes, notices
from ductile.store.engines.api import Tx
from ductile.store.engines.queries import NEVER
from ductile.store.nodes import NodeRequest, RequestKind

EVENT_PAGE = 1000
"""How many waits one transaction compares with an event."""
MOST_ENDED = 100
"""How many waits one transaction ends for an event."""
CONTEXT_PAGE = 100
"""Contexts that are in memory at a time meanwhile; each may have a megabyte."""
CONTEXT_ROOT = '"context'
"""Occurs in a stored condition that reads the context."""


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


def park_job(tx: Tx, settlement: Settlement) -> bool:
    """Begin the wait of a claimed job; False if the attempt is not ours any more."""
    job, wait, now = settlement.job, settlement.wait, to_text(settlement.at)
    assert isinstance(wait, NewWait)
    if tx.run("park_job", id=job.id, attempt=job.attempt, owner=job.owner) != 1:
        return False
    for start, end in edges(JobStatus.RUNNING, (JobStatus.QUEUED,)):
        _insert_transition(tx, job, start, end, str(wait), now)
    tx.run(
        "insert_wait",
        id=wait.id,
        job_id=job.id,
        attempt=job.attempt,
        kind=wait.kind.value,
        pipeline=job.pipeline,
        step_path=job.step_path,
        title=wait.title,
        description=wait.description,
        event_type=wait.event_type,
        condition=wait.condition,
        on_timeout=wait.on_timeout,
        token_hash=wait.token_hash,
        now=now,
        due_at=None if wait.due_at is None else to_text(wait.due_at),
    )
    if wait.due_at is not None:
        tx.effects.waits += 1
    if wait.event_type is not None:
        # A node that does not know the pipeline does not look for events of this type yet.
        _tell_nodes(tx, wait.id, nodes.list_running_without_pipeline(tx, job.pipeline), now)
    _post_begin(tx, job, wait, settlement.at)
    return True


def _post_begin(tx: Tx, job: Job, wait: NewWait, now: datetime) -> None:
    fields = {
        "job_id": job.id,
        "pipeline": job.pipeline,
        "step": job.step_path,
        "waits_for": str(wait),
        "due_at": None if wait.due_at is None else to_text(wait.due_at),
    }
    notice = Notice("jobs", "job.waiting", fields)
    if wait.kind is WaitKind.APPROVAL:
        fields = {"approval_id": wait.id, "title": wait.title, **fields}
        notice = Notice("approvals", "approval.waiting", fields)
    notices.post(tx, notice, now, job_id=job.id, plugin=job.plugin)


def end_job(tx: Tx, row: WaitRow, settlement: Settlement, end: WaitEnd) -> bool:
    """End the job of a wait and record how; False if the wait has ended before."""
    job, at = settlement.job, to_text(settlement.at)
    changed = tx.run(
        "end_waiting_job",
        id=job.id,
        attempt=row.attempt,
        status=settlement.status.value,
        since=row.created_at,
        now=at,
        error=settlement.error,
    )
    if changed != 1:
        return False
    for start, status in edges(JobStatus.QUEUED, settlement.path):
        _insert_transition(tx, job, start, status, settlement.error or end.status.value, at)
    record_end(tx, row.job_id, row.attempt, end)
    _log_wait(tx, row, settlement, at)
    if row.kind == WaitKind.APPROVAL:
        fields = describe_end(job, row.open_wait, end)
        notice = Notice("approvals", f"approval.{end.status}", fields)
        notices.post(tx, notice, settlement.at, job_id=job.id, plugin=job.plugin)
    fields = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": row.attempt,
        "status": settlement.status.value,
        "error": settlement.error,
        "duration_ms": round(settlement.duration * 1000, 3),
        "next_retry_at": None,
    }
    notice = Notice("jobs", f"job.{settlement.status}", fields)
    notices.post(tx, notice, settlement.at, job_id=job.id, plugin=job.plugin)
    return True


def hand_over(tx: Tx, row: WaitRow, end: WaitEnd) -> bool:
    """Leave the end of a wait to a node that knows its pipeline; False if it has ended before."""
    event = end.event
    decided = {
        "status": end.status.value,
        "at": to_text(end.at),
        "by": end.by,
        "comment": end.comment,
        "event": None if event is None else _event_fields(event),
    }
    text = orjson.dumps(decided).decode()
    if tx.run("decide_wait", id=row.id, decided=text, now=to_text(end.at)) != 1:
        return False
    _tell_nodes(tx, row.id, nodes.list_running_with_pipeline(tx, row.pipeline), to_text(end.at))
    return True


def _event_fields(event: Event) -> dict[str, Json]:
    return {
        "type": event.type,
        "payload": event.payload,
        "dedupe_key": event.dedupe_key,
        "source": event.source,
        "timestamp": to_text(event.timestamp),
        "event_id": event.event_id,
    }


def _parse_event(fields: dict[str, Any]) -> Event:
    return Event(**{**fields, "timestamp": from_text(fields["timestamp"])})


def _tell_nodes(tx: Tx, wait_id: str, boots: Sequence[str], now: str) -> None:
    for boot in boots:
        nodes.add_request(tx, NodeRequest(f"{wait_id} {boot}", boot, RequestKind.WAITS), now)


def decode_end(decided: str) -> WaitEnd:
    """What `hand_over` has stored."""
    fields = orjson.loads(decided)
    event = None if fields["event"] is None else _parse_event(fields["event"])
    status, at = WaitStatus(fields["status"]), from_text(fields["at"])
    return WaitEnd(status, at, fields["by"], fields["comment"], event)


def record_end(tx: Tx, job_id: str, attempt: int, end: WaitEnd) -> bool:
    """Write how the wait of a job that has just ended has ended; False if it had none."""
    changed = tx.run(
        "end_wait",
        job_id=job_id,
        attempt=attempt,
        status=end.status.value,
        now=to_text(end.at),
        by=end.by,
        comment=end.comment,
    )
    return changed == 1


def close_stray(tx: Tx, row: WaitRow, now: datetime) -> bool:
    """End a wait whose job no longer waits, because a script has changed it; whether it did."""
    return tx.run("close_stray_wait", id=row.id, now=to_text(now)) == 1


def _insert_transition(
    tx: Tx, job: Job, start: JobStatus, end: JobStatus, reason: str, now: str
) -> None:
    tx.run(
        "insert_transition",
        job_id=job.id,
        from_status=start.value,
        to_status=end.value,
        attempt=job.attempt,
        reason=reason,
        now=now,
    )


def _log_wait(tx: Tx, row: WaitRow, settlement: Settlement, at: str) -> None:
    """The wait is an attempt in the job log, as long as it has lasted."""
    job = settlement.job
    tx.run(
        "insert_log",
        id=f"{job.id}-{row.attempt}",
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        status=settlement.status.value,
        result=settlement.result,
        attempt=row.attempt,
        submitted_by=job.submitted_by,
        created_at=to_text(job.created_at),
        started_at=row.created_at,
        now=at,
        duration_ms=round(settlement.duration * 1000, 3),
        error=settlement.error,
        stdout=None,
        stderr=None,
        logs=None,
        parent_job_id=job.parent_job_id,
        source_event_id=job.source_event_id,
        boot=None,
    )


def find_wait(tx: Tx, wait_id: str) -> WaitRow | None:
    return _first(tx, "wait", id=wait_id)


def find_open_wait(tx: Tx, job_id: str) -> WaitRow | None:
    """The wait of a parked job; None if the job does not wait."""
    return _first(tx, "open_wait_of_job", job_id=job_id)


def find_by_token(tx: Tx, token_hash: str) -> WaitRow | None:
    return _first(tx, "wait_of_token", token_hash=token_hash)


def list_awaited_types(tx: Tx) -> frozenset[str]:
    """The types of events that open waits wait for."""
    return frozenset(type for (type,) in tx.all("awaited_types"))


def match_event(
    tx: Tx, event: Event, since: str = NEVER, after: str = ""
) -> tuple[list[WaitRow], str | None]:
    """The open waits that an event ends, at most `MOST_ENDED`, of those after `after`.

    Waits that began later than `since` are not compared. The event's own transaction compares all
    that it sees: they have begun before, whatever the clocks say. Also returns the last wait that
    was compared, if there may be more.
    """
    values = {"event_type": event.type, "after": after, "before": since}
    rows = [WaitRow(*row) for row in tx.all("waits_for_event", limit=EVENT_PAGE, **values)]
    found: list[WaitRow] = []
    # A few queries for a page, not some for each wait: the transaction must stay short.
    for start in range(0, len(rows), CONTEXT_PAGE):
        some = rows[start : start + CONTEXT_PAGE]
        contexts = _load_contexts(tx, some)
        for row in some:
            if is_matched(row.condition, event.payload, contexts.get(row.id, {})):
                found.append(row)
            if len(found) == MOST_ENDED:
                return found, row.id
    return found, rows[-1].id if len(rows) == EVENT_PAGE else None


class AwaitedEvent(NamedTuple):
    """An event that has to be compared with further waits."""

    id: str
    event: Event
    after: str
    since: str


def store_event(tx: Tx, id: str, event: Event, after: str, now: datetime) -> None:
    """Compare the event with the waits after `after` in later transactions."""
    text = orjson.dumps(_event_fields(event)).decode()
    # A wait that has begun may have a later time: by the clock of another node, or by this one
    # before it was set back.
    row = tx.one("newest_wait_for_event")
    newest = None if row is None else row[0]
    since = max(to_text(now), newest or "")
    tx.run("store_awaited_event", id=id, event=text, after=after, since=since)
    tx.effects.waits += 1


def next_event_id(tx: Tx) -> str | None:
    """The oldest event that has to be compared with further waits."""
    row = tx.one("next_awaited_event")
    return None if row is None else str(row[0])


def lock_event(tx: Tx, id: str) -> bool:
    """Whether no other node compares the event now."""
    return tx.hold("awaited_event", id, wait=False)


def load_event(tx: Tx, id: str) -> AwaitedEvent | None:
    """The event; None if it was compared with all waits."""
    row = tx.one("awaited_event", id=id)
    if row is None:
        return None
    return AwaitedEvent(id, _parse_event(orjson.loads(row[0])), row[1], row[2])


def advance_event(tx: Tx, id: str, after: str | None) -> None:
    """Continue after this wait; None means that there are no more."""
    if after is None:
        tx.run("delete_awaited_event", id=id)
    else:
        tx.run("move_awaited_event", id=id, after=after)


def _load_contexts(tx: Tx, rows: Sequence[WaitRow]) -> dict[str, dict[str, Json]]:
    """By wait, the contexts of those runs whose wait has a condition that reads it."""
    ids = [row.id for row in rows if row.condition is not None and CONTEXT_ROOT in row.condition]
    if not ids:
        return {}
    found = tx.all("contexts_of_waits", ids=orjson.dumps(ids).decode())
    return {id: orjson.loads(context) for id, context in found}


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
