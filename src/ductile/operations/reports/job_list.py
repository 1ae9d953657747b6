"""Jobs as operators read them: one with its attempts, or many in a list."""

from __future__ import annotations

from typing import Any

from ductile.core.values.redact import Redactor
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.operations import status
from ductile.operations.reports.step_input import describe_with
from ductile.store.engines.api import Tx
from ductile.store.jobs import read


def read_job(services: Services, job_id: str) -> dict[str, Any]:
    """Return a job with its attempts and transitions, what `with` sets, and why it waits."""

    def work(tx: Tx) -> list[dict[str, Any]]:
        job = read.describe_job(tx, job_id)
        if job is not None and "pruned" not in job:
            job["with"] = describe_with(tx, services.compiled, job)
        return _explain_waiting(services, tx, [] if job is None else [job])

    found = services.ledger.read(work)
    if not found:
        raise NotFound(f"there is no job {job_id}")
    return found[0]


def list_jobs(services: Services, query: str, **filters: Any) -> list[dict[str, Any]]:
    """Return the rows of a query that lists jobs, each with the reason why it waits."""
    return services.ledger.read(
        lambda tx: _explain_waiting(services, tx, tx.dicts(query, **filters))
    )


def _explain_waiting(
    services: Services, tx: Tx, rows: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    served = bool(services.loops)
    return status.with_reasons(tx, rows, services.compiled, services.unready, served=served)


def describe_job(job: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return a job of `read_job` as callers see it: `job_id` first, without secrets."""
    waits_for = job["waits_for"]
    shown = {"job_id": job["id"], **_without(job, "id", "older", "waits_for")}
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
    """Return a row of `list_jobs` as callers see it."""
    return {"job_id": row["id"], **_without(row, "id", "seq")}


def _without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key not in names}
