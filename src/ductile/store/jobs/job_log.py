"""The rows that record what happened to a job: its changes of state and its attempts."""

from __future__ import annotations

from ductile.clock import to_text
from ductile.model import Job, JobStatus
from ductile.store.engines.api import Tx


def log_transition(
    tx: Tx, job: Job, start: JobStatus, end: JobStatus, reason: str | None, now: str
) -> None:
    tx.append(
        "insert_transition",
        job_id=job.id,
        from_status=start.value,
        to_status=end.value,
        attempt=job.attempt,
        reason=reason,
        now=now,
    )


def log_attempt(
    tx: Tx,
    job: Job,
    attempt: int,
    status: JobStatus,
    now: str,
    *,
    error: str | None,
    started_at: str | None = None,
    duration: float = 0.0,
    result: str | None = None,
    stdout: str | None = None,
    stderr: str | None = None,
    logs: str | None = None,
    boot: str | None = None,
) -> None:
    """Log an attempt that has ended; attempt 0 is the end of a job that did not run."""
    tx.append(
        "insert_log",
        id=f"{job.id}-{attempt}",
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        status=status.value,
        result=result,
        attempt=attempt,
        submitted_by=job.submitted_by,
        created_at=to_text(job.created_at),
        started_at=started_at,
        now=now,
        duration_ms=round(duration * 1000, 3),
        error=error,
        stdout=stdout,
        stderr=stderr,
        logs=logs,
        parent_job_id=job.parent_job_id,
        source_event_id=job.source_event_id,
        boot=boot,
    )
