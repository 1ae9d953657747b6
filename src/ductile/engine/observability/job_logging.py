"""Log lines for settled attempts and deduplicated jobs."""

from __future__ import annotations

from ductile.log import Logger
from ductile.model import JobStatus, Settlement
from ductile.store.engines.api import DedupeDrop

STDERR_LOGGED = 4096
"""Maximum number of characters; `job_log` contains all of it."""


def log_settlement(log: Logger, settlement: Settlement) -> None:
    level, message = _describe(settlement)
    job = settlement.job
    fields = {"plugin": job.plugin, "job_id": job.id}
    log.log(
        level,
        message,
        **fields,
        command=job.command,
        attempt=job.attempt,
        duration_ms=round(settlement.duration * 1000, 1),
        error=settlement.error,
    )
    if settlement.stderr:
        log.warning("stderr", **fields, stderr=settlement.stderr[:STDERR_LOGGED])
    for type in settlement.untaken:
        log.debug("event has no consumer", **fields, event_type=type)


def log_deduplicated(log: Logger, drop: DedupeDrop) -> None:
    log.info(
        "deduplicated",
        plugin=drop.plugin,
        job_id=drop.existing_job_id,
        command=drop.command,
        dedupe_key=drop.dedupe_key,
        submitted_by=drop.submitted_by,
    )


def _describe(settlement: Settlement) -> tuple[str, str]:
    """The log level and the message."""
    status = settlement.status
    if status is JobStatus.SUCCEEDED:
        return "info", "job succeeded"
    if status is JobStatus.QUEUED and settlement.cancelled:
        return "info", "job released"
    if status is JobStatus.QUEUED and not settlement.counted:
        return "warn", "job cannot run here now; requeued"
    if status is JobStatus.QUEUED:
        return "warn", f"attempt {settlement.path[0]}; will be retried"
    return "error", f"job {status}"
