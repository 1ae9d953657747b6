"""Pipeline runs: the scopes that are not splits, with their jobs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ductile.clock import to_text
from ductile.core.pipelines.baggage import control
from ductile.core.pipelines.hooks import RunEnd
from ductile.core.pipelines.step_io import entered_payload
from ductile.model import JobStatus, RunStatus
from ductile.store.engines.api import Tx
from ductile.store.jobs.scopes import ScopeRow

STATUSES = {
    RunStatus.RUNNING: "open",
    RunStatus.SUCCEEDED: "ended",
    RunStatus.FAILED: "failed",
    RunStatus.SKIPPED: "skipped",
}
"""The stored status of a run, by the one that callers know."""
SHOWN = {stored: shown for shown, stored in STATUSES.items()}
BEGINNING, END = "", "9999"
"""Before and after every stored time."""


class KeyJobs(NamedTuple):
    """The jobs of a run that a list shows."""

    first_job_id: str
    parent_job_id: str | None
    submitted_by: str
    failed_job_id: str | None
    failed_step: str | None
    error: str | None
    first_queued_at: str
    first_started_at: str | None
    """None also if it was retried: its first attempt then began earlier."""


class RunCursor(NamedTuple):
    """The last run of a page."""

    created_at: str
    id: str


def list_runs(
    tx: Tx,
    *,
    pipeline: str | None,
    status: RunStatus | None,
    since: datetime | None,
    until: datetime | None,
    before: RunCursor | None,
    limit: int,
) -> list[dict[str, Any]]:
    """Runs that began in the given time, newest first; a filter that is None is not applied."""
    end = END if until is None else to_text(until)
    at, id = (end, "") if before is None else min(before, RunCursor(end, ""))
    page = {
        "since": BEGINNING if since is None else to_text(since),
        "at": at,
        "before": id,
        "limit": limit,
    }
    stored = None if status is None else STATUSES[status]
    if pipeline is not None:
        return tx.dicts("runs_of_pipeline", pipeline=pipeline, status=stored, **page)
    if stored is not None:
        return tx.dicts("runs_with_status", status=stored, **page)
    return tx.dicts("runs", **page)


def find_last_runs(tx: Tx, pipelines: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The newest run by pipeline; one that never ran has none."""
    return {
        row["pipeline"]: row for row in tx.dicts("last_runs_of_pipelines", ids=_array(pipelines))
    }


def find_run(tx: Tx, run_id: str) -> dict[str, Any] | None:
    rows = tx.dicts("run", id=run_id)
    return rows[0] if rows else None


def describe_end(tx: Tx, scope: ScopeRow, status: RunStatus, reason: str | None) -> RunEnd:
    """What the handlers of a run receive; `reason` is that of its scope.

    The failed job is one that made the run fail, not one of a split that was joined regardless.
    """
    job = next(iter(tx.dicts("end_of_run", id=scope.id)), None) or {}
    stored = tx.one("context", id=scope.context_id or "")
    own = control(orjson.loads(stored[0])) if stored else {}
    failed_job_id = job.get("failed_job_id") if status is RunStatus.FAILED else None
    first_hop = own.get("route_first_hop")
    return RunEnd(
        scope.id,
        scope.pipeline,
        status,
        first_hop=job.get("first_hop", 0) if first_hop is None else first_hop,
        last_job_id=failed_job_id or job.get("last_job_id"),
        payload=entered_payload(job["command"], orjson.loads(job["payload"])) if job else {},
        origin=own.get("origin"),
        failed_job_id=failed_job_id,
        failed_step=job["failed_step"] if failed_job_id else None,
        error=job["error"] if failed_job_id else reason,
    )


def find_key_jobs(tx: Tx, run_ids: Sequence[str]) -> dict[str, KeyJobs]:
    """By run; a run that was deduplicated has no job."""
    rows = tx.all("key_jobs_of_runs", ids=_array(run_ids)) if run_ids else []
    return {row[0]: KeyJobs(*row[1:]) for row in rows}


def list_waiting_jobs(tx: Tx, run_ids: Sequence[str]) -> list[tuple[str, str]]:
    """Each waiting step of these runs, the oldest first: the run and the job."""
    return tx.all("waiting_jobs_of_runs", ids=_array(run_ids)) if run_ids else []


def list_steps(
    tx: Tx, run_id: str, *, limit: int, max_bytes: int, tail: int
) -> list[dict[str, Any]]:
    """The run's jobs with their inputs, their outputs and the end of their logs.

    Documents of more than `max_bytes` are NULL, logs are cut to the last `tail` characters.
    """
    return tx.dicts("steps_of_run", id=run_id, limit=limit, most=max_bytes, tail=tail)


def list_splits(tx: Tx, run_id: str) -> list[dict[str, Any]]:
    return tx.dicts("splits_of_run", id=run_id)


def list_job_ids(tx: Tx, run_id: str, statuses: Collection[JobStatus], limit: int) -> list[str]:
    """The run's jobs in one of these states, oldest first."""
    values = _array(status.value for status in statuses)
    return [row[0] for row in tx.all("jobs_of_run_in_status", id=run_id, ids=values, limit=limit)]


def _array(values: Iterable[str]) -> str:
    return orjson.dumps(list(values)).decode()
