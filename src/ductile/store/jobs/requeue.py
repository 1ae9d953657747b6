"""Jobs that go back to the queue without an outcome: given back by a crash, or retried."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.core.jobs.state_machine import ENDED_BADLY, edges
from ductile.model import Job, JobStatus, Notice
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import enqueue, scopes

UNSTARTED = "claimed, but never started"


def unstart(tx: Tx, job: Job, now: datetime) -> bool:
    """Give back a claim whose process never started: its attempt does not count."""
    if tx.run("unstart_job", id=job.id, attempt=job.attempt) != 1:
        return False
    _record(tx, job, JobStatus.RUNNING, UNSTARTED, now)
    return True


def was_unstarted(tx: Tx, job: Job) -> bool:
    """Whether this attempt was given back so before: it may be what the gateway dies of."""
    asked = {"id": job.id, "attempt": job.attempt, "reason": UNSTARTED}
    return tx.one("was_given_back", **asked) is not None


def retry(tx: Tx, job: Job, attempts: int, now: datetime) -> bool:
    """An operator's retry of a failed or dead job, with `attempts` more tries.

    The scopes that failed with it are open again: when it succeeds, their joins run.
    """
    if job.status not in ENDED_BADLY:
        return False
    changed = tx.run(
        "requeue_job", id=job.id, status=job.status.value, attempt=job.attempt, attempts=attempts
    )
    if changed != 1:
        return False
    scopes.reopen_scopes(tx, job.scope_id)
    _record(tx, job, job.status, "retried by an operator", now)
    told = {"job_id": job.id, "plugin": job.plugin, "command": job.command, "status": "queued"}
    notices.post(tx, Notice("jobs", "job.queued", told), now, job_id=job.id, plugin=job.plugin)
    return True


def _record(tx: Tx, job: Job, start: JobStatus, reason: str, now: datetime) -> None:
    edges(start, (JobStatus.QUEUED,))
    tx.run(
        "insert_transition",
        job_id=job.id,
        from_status=start.value,
        to_status=JobStatus.QUEUED.value,
        attempt=job.attempt,
        reason=reason,
        now=to_text(now),
    )
    tx.effects.ready += 1


def orphans(tx: Tx, owner: str | None, limit: int) -> list[Job]:
    """Running jobs of a boot that is no more."""
    return [enqueue.from_row(row) for row in tx.all("orphans", owner=owner, limit=limit)]


def running(tx: Tx, owner: str) -> list[tuple[str, int]]:
    """What a boot has running: each job's id, and which attempt of it."""
    return [(id, attempt) for id, attempt in tx.all("running_of_owner", owner=owner)]


def queued_of(tx: Tx, plugin: str, until: datetime, limit: int) -> list[Job]:
    """The plugin's jobs that wait and were made by then, the oldest first."""
    rows = tx.all("queued_of_plugin", plugin=plugin, until=to_text(until), limit=limit)
    return [enqueue.from_row(row) for row in rows]
