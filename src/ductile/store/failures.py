"""Failed and dead jobs that may need an operator: which commands have them, and their end."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from ductile.clock import to_text
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.model import Job, JobStatus
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs.read import JobFilter, list_jobs

RECENT = timedelta(days=1)
"""A failure that was not to be retried is news for this time; a dead job waits for a decision."""
MAX_KINDS = 1000
"""Number of combinations of plugin, command and state that are looked at."""
MAX_COUNTED = 1000
"""Number of jobs that are counted per command."""


def list_failing_commands(tx: Tx, now: datetime, limit: int) -> list[dict[str, Any]]:
    """The commands with unresolved jobs, each with their number and the newest one.

    What a step waits for has no command of its own: there is one row per step.
    """
    since = now - RECENT
    found = tx.dicts(
        "failing_commands", since=to_text(since), kinds=MAX_KINDS, most=MAX_COUNTED, limit=limit
    )
    rows: list[dict[str, Any]] = []
    for row in found:
        rows += _split_by_step(tx, row, since) if row["plugin"] == WAIT_PLUGIN else [row]
    return rows[:limit]


def _split_by_step(tx: Tx, row: dict[str, Any], since: datetime) -> list[dict[str, Any]]:
    status = JobStatus(row["status"])
    wanted = JobFilter(
        status=status,
        plugin=row["plugin"],
        command=row["command"],
        acknowledged=False,
        since=since if status is JobStatus.FAILED else None,
    )
    steps: dict[tuple[str, str], dict[str, Any]] = {}
    for job in list_jobs(tx, wanted, limit=MAX_COUNTED):
        values = {**job, "job_id": job["id"], "jobs": 0}
        step = steps.setdefault((job["pipeline"], job["step_path"]), {k: values[k] for k in row})
        step["jobs"] += 1
    return list(steps.values())


def acknowledge_job(tx: Tx, job: Job, actor: str, now: datetime) -> bool:
    """Record that a failure no longer needs an operator; False if it did not."""
    if tx.run("acknowledge_job", id=job.id, actor=actor, now=to_text(now)) != 1:
        return False
    notices.post_job(tx, job, "job.acknowledged", now, status=job.status.value)
    return True
