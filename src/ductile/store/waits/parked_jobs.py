"""The jobs of waiting steps: parked when the wait begins, ended by the first of several ends.

The job of a step that waits is `queued` with a retry time that never comes, so no claim takes it
and its scope stays open. The transaction that ends the wait changes the row of the job first: that
is the one compare-and-set, so a decision, an event, a timer and a cancellation cannot all succeed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import orjson

from ductile.clock import from_text, to_text
from ductile.core.jobs.state_machine import edges
from ductile.core.waits.announce import describe_end
from ductile.core.waits.begin import NewWait
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.core.waits.parse import WaitKind
from ductile.model import Job, JobStatus, Notice, Settlement
from ductile.store import nodes, notices
from ductile.store.engines.api import Tx
from ductile.store.jobs.job_log import log_attempt, log_transition
from ductile.store.nodes import NodeRequest, RequestKind
from ductile.store.waits.awaited_events import event_fields, parse_event
from ductile.store.waits.wait_rows import WaitRow


def park_job(tx: Tx, settlement: Settlement) -> bool:
    """Begin the wait of a claimed job; False if the attempt is not ours any more."""
    job, wait, now = settlement.job, settlement.wait, to_text(settlement.at)
    assert isinstance(wait, NewWait)
    if tx.run("park_job", id=job.id, attempt=job.attempt, owner=job.owner) != 1:
        return False
    for start, end in edges(JobStatus.RUNNING, (JobStatus.QUEUED,)):
        log_transition(tx, job, start, end, str(wait), now)
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
        log_transition(tx, job, start, status, settlement.error or end.status.value, at)
    record_end(tx, row.job_id, row.attempt, end)
    _log_wait(tx, row, settlement, at)
    if row.kind == WaitKind.APPROVAL:
        fields = describe_end(job, row.open_wait, end)
        notice = Notice("approvals", f"approval.{end.status}", fields)
        notices.post(tx, notice, settlement.at, job_id=job.id, plugin=job.plugin)
    notices.post_job(
        tx,
        job,
        f"job.{settlement.status}",
        settlement.at,
        attempt=row.attempt,
        status=settlement.status.value,
        error=settlement.error,
        duration_ms=round(settlement.duration * 1000, 3),
        next_retry_at=None,
    )
    return True


def hand_over(tx: Tx, row: WaitRow, end: WaitEnd) -> bool:
    """Leave the end of a wait to a node that knows its pipeline; False if it has ended before."""
    event = end.event
    decided = {
        "status": end.status.value,
        "at": to_text(end.at),
        "by": end.by,
        "comment": end.comment,
        "event": None if event is None else event_fields(event),
    }
    text = orjson.dumps(decided).decode()
    if tx.run("decide_wait", id=row.id, decided=text, now=to_text(end.at)) != 1:
        return False
    _tell_nodes(tx, row.id, nodes.list_running_with_pipeline(tx, row.pipeline), to_text(end.at))
    return True


def _tell_nodes(tx: Tx, wait_id: str, boots: Sequence[str], now: str) -> None:
    for boot in boots:
        nodes.add_request(tx, NodeRequest(f"{wait_id} {boot}", boot, RequestKind.WAITS), now)


def decode_end(decided: str) -> WaitEnd:
    """What `hand_over` has stored."""
    fields = orjson.loads(decided)
    event = None if fields["event"] is None else parse_event(fields["event"])
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


def _log_wait(tx: Tx, row: WaitRow, settlement: Settlement, at: str) -> None:
    """The wait is an attempt in the job log, as long as it has lasted."""
    log_attempt(
        tx,
        settlement.job,
        row.attempt,
        settlement.status,
        at,
        error=settlement.error,
        started_at=row.created_at,
        duration=settlement.duration,
        result=settlement.result,
    )
