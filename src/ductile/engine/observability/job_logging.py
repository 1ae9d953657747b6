"""Log lines for settled attempts, deduplicated jobs and circuit breakers."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from ductile.log import Logger
from ductile.model import JobStatus, Settlement
from ductile.store.engines.api import DedupeDrop, StoredNotice

STDERR_LOGGED = 4096
"""Maximum number of characters; `job_log` contains all of it."""


def log_settlement(log: Logger, settlement: Settlement, trace_id: str | None) -> None:
    level, message = _describe(settlement)
    job = settlement.job
    fields = {"plugin": job.plugin, "job_id": job.id}
    if trace_id is not None:
        fields["trace_id"] = trace_id
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


def log_breakers(log: Logger, notices: Iterable[StoredNotice]) -> None:
    """Log the state changes of circuit breakers among these notices."""
    for notice in notices:
        if notice.topic == "breakers":
            change = orjson.loads(notice.payload)
            log.log(
                "warn" if change["to_state"] == "open" else "info",
                f"breaker {change['to_state']}",
                plugin=change["plugin"],
                command=change["command"],
                job_id=change["job_id"],
                reason=change["reason"],
                failures=change["failure_count"],
            )


def _describe(settlement: Settlement) -> tuple[str, str]:
    """The log level and the message."""
    status = settlement.status
    if status is JobStatus.SUCCEEDED:
        return "info", "job succeeded"
    if settlement.wait is not None:
        return "info", "step waits"
    if status is JobStatus.QUEUED and settlement.cancelled:
        return "info", "job released"
    if status is JobStatus.QUEUED and not settlement.counted:
        return "warn", "job cannot run here now; requeued"
    if status is JobStatus.QUEUED:
        return "warn", f"attempt {settlement.path[0]}; will be retried"
    return "error", f"job {status}"
