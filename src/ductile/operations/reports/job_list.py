"""Jobs as operators read them: one with its attempts, or many in a list."""

from __future__ import annotations

from typing import Any

from ductile.core.jobs.live_log import Progress, find_progress
from ductile.core.jobs.trace import context_of
from ductile.core.values.redact import Redactor
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.model import JobStatus, is_ended_on_purpose
from ductile.operations.reports import waits_for
from ductile.operations.reports.step_input import describe_with
from ductile.store.engines.api import Tx, Work
from ductile.store.jobs import read
from ductile.store.jobs.read import JobFilter


def read_job(services: Services, job_id: str) -> dict[str, Any]:
    """Return a job with its attempts and transitions, what `with` sets, and why it waits."""

    def work(tx: Tx) -> list[dict[str, Any]]:
        job = read.describe_job(tx, job_id)
        if job is not None and "pruned" not in job:
            job["with"] = describe_with(tx, services.compiled, job)
        if job is not None:
            _describe_trace(services, job)
        return _explain_waiting(services, tx, [] if job is None else [job])

    found = services.ledger.read(work)
    if not found:
        raise NotFound(f"there is no job {job_id}")
    return _with_progress(services, found)[0]


def _describe_trace(services: Services, job: dict[str, Any]) -> None:
    """Replace the stored trace by its id, if tracing is on."""
    column = job.pop("trace", None)
    if services.compiled.tracing is not None:
        event_id = None if job["parent_job_id"] else job["source_event_id"]
        job["trace_id"] = context_of(column, job["id"], event_id).trace_id


def list_jobs(
    services: Services, wanted: JobFilter, *, before: int | None, limit: int
) -> list[dict[str, Any]]:
    """Return a page of jobs, newest first, each with the reason why it waits."""
    return _list_rows(services, lambda tx: read.list_jobs(tx, wanted, before=before, limit=limit))


def list_pending(services: Services, limit: int) -> list[dict[str, Any]]:
    """Return queued and running jobs in the order of the queue, as `list_jobs` does."""
    return _list_rows(services, lambda tx: tx.dicts("pending_jobs", limit=limit))


def _list_rows(services: Services, find: Work[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = services.ledger.read(lambda tx: _explain_waiting(services, tx, find(tx)))
    return _with_progress(services, rows)


def _with_progress(services: Services, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add the `progress` that running jobs report."""
    for row in rows:
        if row["status"] == JobStatus.RUNNING and (found := read_progress(services, row["id"])):
            row["progress"] = found
    return rows


def read_progress(services: Services, job_id: str) -> dict[str, Any] | None:
    """Return the progress that a job reports which this gateway runs; None without any."""
    log = services.running_log(job_id)
    progress = find_progress(log.text) if log else None
    return describe_progress(progress, log.elapsed) if log and progress else None


def read_all_progress(services: Services) -> dict[str, dict[str, Any]]:
    """The progress of every job that this gateway runs and that reports any, by its id."""
    found = {job_id: read_progress(services, job_id) for job_id in services.running_ids()}
    return {job_id: progress for job_id, progress in found.items() if progress is not None}


def describe_progress(progress: Progress, elapsed: float) -> dict[str, Any]:
    left = progress.seconds_left(elapsed)
    return {
        "percent": progress.percent,
        "message": progress.message,
        "seconds_left": None if left is None else round(left, 1),
    }


def _explain_waiting(
    services: Services, tx: Tx, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    served, now = bool(services.loops), services.clock.now()
    return waits_for.with_reasons(
        tx, rows, services.compiled, services.unready, served=served, now=now
    )


def describe_job(job: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return a job of `read_job` as callers see it: `job_id` first, without secrets."""
    waits_for = job["waits_for"]
    shown = {"job_id": job["id"], **_without(job, "id", "older", "waits_for")}
    shown["cancelled"] = _is_cancelled(job)
    shown["payload"] = redactor.document(job.get("payload"))
    if "with" in job:
        shown["with"] = redactor.document(job["with"])
    for name in ("attempts", "transitions"):
        rows = job[name]
        shown[name] = [_without(row, "older") for row in rows]
        if rows and rows[0]["older"]:
            shown[f"{name}_left_out"] = rows[0]["older"]
    return {**shown, "waits_for": waits_for} if waits_for else shown


def summarize_job(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of `list_jobs` or `list_pending` as callers see it."""
    return {"job_id": row["id"], **_without(row, "id", "seq"), "cancelled": _is_cancelled(row)}


def _is_cancelled(job: dict[str, Any]) -> bool:
    return job["status"] == JobStatus.DEAD and is_ended_on_purpose(job["last_error"])


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
