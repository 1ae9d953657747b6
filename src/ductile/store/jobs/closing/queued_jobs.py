"""Ending jobs that have not started: cancelled, replaced, over a limit."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.core.jobs.state_machine import edges
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.model import Job, JobStatus, Notice
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import read
from ductile.store.jobs.closing.work import Closing, JobEnd, Work
from ductile.store.waits import parked_jobs


def end_queued_row(
    tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime
) -> JobEnd | None:
    """Move a queued job to its final status; None if it is no longer queued."""
    at = to_text(now)
    changed = tx.run(
        "end_queued_job", id=job.id, attempt=job.attempt, status=status.value, error=reason, now=at
    )
    if changed != 1:
        return None
    edges(JobStatus.QUEUED, (status,))
    tx.append(
        "insert_transition",
        job_id=job.id,
        from_status=JobStatus.QUEUED.value,
        to_status=status.value,
        attempt=job.attempt,
        reason=reason,
        now=at,
    )
    if job.plugin == WAIT_PLUGIN:
        end = WaitEnd(WaitStatus.CANCELLED, now, comment=reason)
        parked_jobs.record_end(tx, job.id, job.attempt, end)
    _log_end(tx, job, status, reason, at)
    fields = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "status": status.value,
        "error": reason,
    }
    notices.post(tx, Notice("jobs", f"job.{status}", fields), now, job_id=job.id, plugin=job.plugin)
    last = {"id": job.id, "attempt": job.attempt - 1}
    timed_out = job.attempt > 1 and tx.one("attempt_timed_out", **last) is not None
    return JobEnd(job, status, error=reason, cancelled=True, timed_out=timed_out)


def _log_end(tx: Tx, job: Job, status: JobStatus, reason: str, at: str) -> None:
    """Put the final status in the log row of the last attempt, or in a row of its own."""
    # Attempt 0 is the row of a job that ended before without having run, and was retried. The row
    # of an earlier wait keeps how that wait ended.
    for attempt in (0,) if job.plugin == WAIT_PLUGIN else (job.attempt - 1, 0):
        row = f"{job.id}-{attempt}"
        if tx.run("end_last_attempt", id=row, status=status.value, error=reason):
            return
    tx.append(
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
        boot=None,
    )


def end_over_limit(closing: Closing, job_id: str, reason: str) -> list[Work]:
    job = read.load_job(closing.tx, job_id)
    assert job is not None, "this transaction has just written it"
    end = end_queued_row(closing.tx, job, JobStatus.DEAD, reason, closing.now)
    return [] if end is None else [end]
