"""Rows of `scopes`: one per pipeline instance and one per split that was entered."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from ductile.clock import to_text
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines.api import Tx

LONGEST_CAUSE = 500
"""Characters of a job's error in the reason of its scope; the job has the whole text."""


class ScopeRow(NamedTuple):
    """The columns of the query `scope_locked`."""

    id: str
    parent_id: str | None
    pipeline: str
    split: str
    """The path of the split; empty for a pipeline instance."""
    branch: str
    parent_job_id: str | None
    hops: int
    join_always: int
    context_id: str | None
    status: str
    join_step: str | None
    """NULL in rows older than the join columns; empty where no step follows the split."""
    join_plugin: str | None
    join_command: str | None
    schedule_id: str | None = None
    """The entry of the pipeline that started this run."""
    limit_key: str | None = None
    """Of a run of a pipeline with a limit; NULL in other scopes."""
    displaced_by: str | None = None
    """The newer run of its key for which this run is being cancelled."""


def lock_scope(tx: Tx, scope_id: str) -> ScopeRow | None:
    """Lock the row until the transaction ends, so that two jobs cannot close it at once.

    What the scope contains has to be read in a later statement: only then does PostgreSQL's
    snapshot include what the previous holder of the lock committed.
    """
    row = tx.one("lock_scope", id=scope_id)
    return None if row is None else ScopeRow(*row)


def is_busy(tx: Tx, scope_id: str) -> bool:
    """Whether the scope has a queued or running job or an open child scope."""
    return tx.one("scope_is_busy", id=scope_id) is not None


def describe_failure(
    job_id: str | None, step: str | None, status: str | None, error: str | None, reason: str | None
) -> str | None:
    """Why a scope failed: its first failed job, or else the reason of an inner scope."""
    if job_id is None:
        return reason
    cause = (error or "").strip()
    if len(cause) > LONGEST_CAUSE:
        cause = f"{cause[: LONGEST_CAUSE - 3]}..."
    return f"step {step} ended as {status} (job {job_id}){': ' if cause else ''}{cause}"


def read_cause(reason: str) -> str:
    """The error of the job in a text of `describe_failure`; empty without one."""
    return reason.partition("): ")[2] if reason.startswith("step ") else ""


def end_scope(
    tx: Tx, scope: ScopeRow, status: str, now: datetime, *, reason: str | None = None
) -> None:
    """Set the final status; the end of an instance is also announced."""
    tx.run("end_scope", id=scope.id, status=status, reason=reason, now=to_text(now))
    if scope.split:
        return
    fields = {
        "instance_id": scope.id,
        "pipeline": scope.pipeline,
        "status": status,
        "reason": reason,
    }
    notices.post(tx, Notice("pipelines", f"pipeline.{status}", fields), now, job_id=scope.id)


def find_run_id(tx: Tx, scope_id: str) -> str | None:
    """The run that a scope belongs to."""
    row = tx.one("instance_of_scope", id=scope_id)
    return None if row is None else str(row[0])


def reopen_scopes(tx: Tx, scope_id: str | None) -> None:
    """Reopen the failed scopes around a job that is retried, from the inside out."""
    while scope_id is not None:
        scope = lock_scope(tx, scope_id)
        # An ended scope continued without this job (`join: always`); its join runs only once.
        if scope is None or scope.status == "ended":
            return
        tx.run("reopen_scope", id=scope_id)
        scope_id = scope.parent_id
