"""Jobs that end, or go back, without an attempt's outcome: cancelled, gone, orphaned, retried."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.core.breaker import Result
from ductile.core.lifecycle import RETRIABLE_BY_OPERATOR, edges
from ductile.model import DEFAULT_BREAKER, BreakerPolicy, Job, JobStatus, Notice
from ductile.store import breakers, jobs, notices
from ductile.store.ledger import Tx


def end_queued(tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime) -> bool:
    """End a job that waits; False where it is no longer waiting."""
    at = to_text(now)
    ended = tx.run(
        "end_queued_job", id=job.id, attempt=job.attempt, status=status.value, error=reason, now=at
    )
    if ended != 1:
        return False
    _transition(tx, job, JobStatus.QUEUED, status, reason, now)
    last = f"{job.id}-{job.attempt - 1}"
    if not tx.run("end_last_attempt", id=last, status=status.value, error=reason):
        _log_without_attempt(tx, job, status, reason, at)
    row = tx.one("attempts_of", id=job.id)
    if row is not None and row[7] is not None:
        # It never ran to an end: that frees a probe's place, and counts for nothing else.
        scheduled_job_ended(
            tx,
            plugin=job.plugin,
            command=job.command,
            job_id=job.id,
            schedule_id=row[7],
            result=Result.NEITHER,
            policy=DEFAULT_BREAKER,
            now=now,
        )
    _tell(tx, job, f"job.{status}", status, reason, now)
    return True


def scheduled_job_ended(
    tx: Tx,
    *,
    plugin: str,
    command: str,
    job_id: str,
    schedule_id: str,
    result: Result,
    policy: BreakerPolicy,
    now: datetime,
) -> None:
    """What a scheduled job's end means to its entry and its breaker."""
    if result is Result.SUCCESS:
        tx.run("entry_succeeded", plugin=plugin, schedule_id=schedule_id, now=to_text(now))
    breakers.job_ended(
        tx, plugin=plugin, command=command, job_id=job_id, result=result, policy=policy, now=now
    )


def unstart(tx: Tx, job: Job, now: datetime) -> bool:
    """Give back a claim whose process never started: its attempt does not count."""
    if tx.run("unstart_job", id=job.id) != 1:
        return False
    _transition(tx, job, JobStatus.RUNNING, JobStatus.QUEUED, "claimed, but never started", now)
    tx.effects.ready += 1
    return True


def requeue(tx: Tx, job: Job, attempts: int, now: datetime) -> bool:
    """An operator's retry of a failed or dead job, with `attempts` more tries."""
    if job.status not in RETRIABLE_BY_OPERATOR:
        return False
    changed = tx.run(
        "requeue_job", id=job.id, status=job.status.value, attempt=job.attempt, attempts=attempts
    )
    if changed != 1:
        return False
    reason = "retried by an operator"
    _transition(tx, job, job.status, JobStatus.QUEUED, reason, now)
    tx.effects.ready += 1
    _tell(tx, job, "job.queued", JobStatus.QUEUED, reason, now)
    return True


def orphans(tx: Tx, owner: str | None, limit: int) -> list[Job]:
    """Running jobs of a boot that is no more."""
    return [jobs.from_row(row) for row in tx.all("orphans", owner=owner, limit=limit)]


def queued_of(tx: Tx, plugin: str, limit: int) -> list[Job]:
    return [jobs.from_row(row) for row in tx.all("queued_of_plugin", plugin=plugin, limit=limit)]


def _transition(
    tx: Tx, job: Job, start: JobStatus, end: JobStatus, reason: str, now: datetime
) -> None:
    edges(start, (end,))
    tx.run(
        "insert_transition",
        job_id=job.id,
        from_status=start.value,
        to_status=end.value,
        attempt=job.attempt,
        reason=reason,
        now=to_text(now),
    )


def _log_without_attempt(tx: Tx, job: Job, status: JobStatus, reason: str, at: str) -> None:
    tx.run(
        "insert_log",
        id=f"{job.id}-0",
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        status=status.value,
        result=None,
        attempt=0,
        submitted_by=job.submitted_by,
        created_at=to_text(job.created_at),
        started_at=None,
        now=at,
        duration_ms=0.0,
        error=reason,
        stdout=None,
        stderr=None,
        logs=None,
        parent_job_id=job.parent_job_id,
        source_event_id=job.source_event_id,
    )


def _tell(tx: Tx, job: Job, kind: str, status: JobStatus, reason: str, now: datetime) -> None:
    told = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "status": status.value,
        "error": reason,
    }
    notices.post(tx, Notice("jobs", kind, told), now, job_id=job.id, plugin=job.plugin)
