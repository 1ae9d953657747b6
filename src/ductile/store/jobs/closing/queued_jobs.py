"""Ending jobs that have not started: cancelled, replaced, over a limit."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.core.jobs.state_machine import edges
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.model import Job, JobStatus
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import read
from ductile.store.jobs.closing.work import Closing, JobEnd, Work
from ductile.store.jobs.job_log import log_attempt, log_transition
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
    log_transition(tx, job, JobStatus.QUEUED, status, reason, at)
    if job.plugin == WAIT_PLUGIN:
        end = WaitEnd(WaitStatus.CANCELLED, now, comment=reason)
        parked_jobs.record_end(tx, job.id, job.attempt, end)
    _log_end(tx, job, status, reason, at)
    notices.post_job(
        tx, job, f"job.{status}", now, attempt=job.attempt, status=status.value, error=reason
    )
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
    log_attempt(tx, job, 0, status, at, error=reason)


def end_over_limit(closing: Closing, job_id: str, reason: str) -> list[Work]:
    job = read.load_job(closing.tx, job_id)
    assert job is not None, "this transaction has just written it"
    end = end_queued_row(closing.tx, job, JobStatus.DEAD, reason, closing.now)
    return [] if end is None else [end]
