"""What the log says of the end of an attempt, and of a job that was not made."""

from __future__ import annotations

from ductile.log import Logger
from ductile.model import JobStatus, Settlement
from ductile.store.engines.api import DedupeDrop

STDERR_LOGGED = 4096
"""The whole of it stands in `job_log`."""


def tell(log: Logger, settlement: Settlement) -> None:
    level, message = _described(settlement)
    job = settlement.job
    about = {"plugin": job.plugin, "job_id": job.id}
    log.log(
        level,
        message,
        **about,
        command=job.command,
        attempt=job.attempt,
        duration_ms=round(settlement.duration * 1000, 1),
        error=settlement.error,
    )
    if settlement.stderr:
        log.warning("stderr", **about, stderr=settlement.stderr[:STDERR_LOGGED])
    for type in settlement.untaken:
        log.debug("nothing takes this event", **about, event_type=type)


def tell_drop(log: Logger, drop: DedupeDrop) -> None:
    log.info(
        "deduplicated",
        plugin=drop.plugin,
        job_id=drop.existing_job_id,
        command=drop.command,
        dedupe_key=drop.dedupe_key,
        submitted_by=drop.submitted_by,
    )


def _described(settlement: Settlement) -> tuple[str, str]:
    """The log level and the text."""
    status = settlement.status
    if status is JobStatus.SUCCEEDED:
        return "info", "job succeeded"
    if status is JobStatus.QUEUED and settlement.cancelled:
        return "info", "job released"
    if status is JobStatus.QUEUED and not settlement.counted:
        return "warn", "the job cannot run here now, and waits"
    if status is JobStatus.QUEUED:
        return "warn", f"attempt {settlement.path[0]}, to be retried"
    return "error", f"job {status}"
