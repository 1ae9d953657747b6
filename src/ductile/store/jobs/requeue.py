"""Jobs that return to the queue without an outcome: after a crash, or retried by an operator."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.jobs.state_machine import ENDED_BADLY, edges
from ductile.model import Job, JobStatus
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import read, scopes
from ductile.store.jobs.job_log import log_transition

UNSTARTED = "claimed, but never started"


def list_queued_groups(tx: Tx, limit: int) -> list[dict[str, Any]]:
    """The queued jobs by plugin, command, step and the configuration that they were created under:
    how many there are, the id of one, and whether they are waiting steps."""
    rows = tx.dicts("queued_groups", limit=limit)
    return [{**row, "is_waiting": bool(row["is_waiting"])} for row in rows]


def undo_claim(tx: Tx, job: Job, now: datetime) -> bool:
    """Requeue a claimed job whose process never started: its attempt does not count."""
    if tx.run("undo_claim", id=job.id, attempt=job.attempt) != 1:
        return False
    _record_requeue(tx, job, JobStatus.RUNNING, UNSTARTED, now)
    return True


def was_claim_undone(tx: Tx, job: Job) -> bool:
    """Whether a claim of this attempt was undone before: the job may be what kills the gateway."""
    values = {"id": job.id, "attempt": job.attempt, "reason": UNSTARTED}
    return tx.one("was_claim_undone", **values) is not None


def retry_job(tx: Tx, job: Job, attempts: int, now: datetime) -> bool:
    """Requeue a failed or dead job for an operator, with `attempts` more attempts.

    The scopes that failed with it are reopened, so that their joins run when it succeeds.
    """
    if job.status not in ENDED_BADLY:
        return False
    changed = tx.run(
        "requeue_job", id=job.id, status=job.status.value, attempt=job.attempt, attempts=attempts
    )
    if changed != 1:
        return False
    scopes.reopen_scopes(tx, job.scope_id)
    _record_requeue(tx, job, job.status, "retried by an operator", now)
    _announce(tx, job, now)
    return True


def skip_backoff(tx: Tx, job: Job, now: datetime) -> bool:
    """Make a queued job ready that waits for its next attempt; False if it no longer waits."""
    if tx.run("skip_backoff", id=job.id, attempt=job.attempt) != 1:
        return False
    tx.effects.ready += 1
    _announce(tx, job, now)
    return True


def _announce(tx: Tx, job: Job, now: datetime) -> None:
    notices.post_job(tx, job, "job.queued", now, status="queued")


def _record_requeue(tx: Tx, job: Job, start: JobStatus, reason: str, now: datetime) -> None:
    edges(start, (JobStatus.QUEUED,))
    log_transition(tx, job, start, JobStatus.QUEUED, reason, to_text(now))
    tx.effects.ready += 1


def list_orphans(tx: Tx, owner: str | None, limit: int) -> list[Job]:
    """Running jobs of a boot that has ended."""
    return [read.parse_job(row) for row in tx.all("orphans", owner=owner, limit=limit)]


def list_running(tx: Tx, owner: str) -> list[tuple[str, int]]:
    """The running jobs of a boot: id and attempt."""
    return [(id, attempt) for id, attempt in tx.all("running_of_owner", owner=owner)]


def list_queued(
    tx: Tx,
    plugin: str,
    limit: int,
    snapshot_ids: Sequence[str] | None = None,
) -> list[Job]:
    """The plugin's queued jobs, oldest first; with `snapshot_ids`, only those that were created
    under one of these configurations.
    """
    rows = tx.all(
        "queued_of_plugin",
        plugin=plugin,
        limit=limit,
        any_snapshot=int(snapshot_ids is None),
        ids=orjson.dumps(snapshot_ids or ()).decode(),
    )
    return [read.parse_job(row) for row in rows]
