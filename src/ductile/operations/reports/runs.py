"""Pipeline runs as operators read them: a list, and one with its steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import from_text
from ductile.core.values.redact import Redactor
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import NotFound, UsageError
from ductile.model import RunStatus
from ductile.operations import job_tree
from ductile.operations.flow.holds import describe_held_runs
from ductile.operations.reports.conditions import explain_false_conditions
from ductile.operations.reports.run_steps import describe_steps
from ductile.operations.waits.describe import describe_waiting_runs, describe_waits
from ductile.store.engines.api import Tx
from ductile.store.jobs import runs
from ductile.store.jobs.runs import KeyJobs, RunCursor
from ductile.store.tx_config import TxConfig

MAX_STEPS = 500
MAX_DOCUMENT = 16 * 1024
"""Bytes of a payload or response that a run shows; the job has all of it."""
LOG_TAIL = 2000
SEPARATOR = "_"


def parse_cursor(text: str | None) -> RunCursor | None:
    if text is None:
        return None
    at, _, id = text.partition(SEPARATOR)
    try:
        from_text(at)
    except (ValueError, OverflowError):
        raise UsageError("`before` must be the cursor of a page") from None
    return RunCursor(at, id)


def list_runs(tx: Tx, tx_config: TxConfig, *, limit: int, **filters: Any) -> dict[str, Any]:
    """Return a page of runs, newest first; `cursor` leads to the next page."""
    rows = runs.list_runs(tx, limit=limit + 1, **filters)
    page, more = rows[:limit], len(rows) > limit
    key_jobs = runs.find_key_jobs(tx, [row["id"] for row in page])
    last = page[-1] if more else None
    waits = _explain_waiting(tx, [row["id"] for row in page if row["status"] == "open"], tx_config)
    return {
        "runs": [summarize_run(row, key_jobs.get(row["id"]), waits.get(row["id"])) for row in page],
        "cursor": f"{last['created_at']}{SEPARATOR}{last['id']}" if last else None,
    }


def _explain_waiting(tx: Tx, run_ids: Sequence[str], tx_config: TxConfig) -> dict[str, str]:
    """By run: the approval, event or time, or the other run that it waits for."""
    return {**describe_waiting_runs(tx, run_ids), **describe_held_runs(tx, run_ids, tx_config)}


def summarize_run(
    row: Mapping[str, Any], jobs: KeyJobs | None, waits_for: str | None = None
) -> dict[str, Any]:
    began, ended = from_text(row["created_at"]), row["ended_at"]
    failed = row["status"] == "failed" and jobs is not None
    return {
        "instance_id": row["id"],
        "pipeline": row["pipeline"],
        "status": runs.SHOWN[row["status"]].value,
        "trigger": jobs.submitted_by if jobs else None,
        "parent_job_id": jobs.parent_job_id if jobs else None,
        "root_job_id": jobs.first_job_id if jobs else None,
        "started_at": row["created_at"],
        "ended_at": ended,
        "duration_ms": _milliseconds(began, from_text(ended)) if ended else None,
        "queued_ms": _queue_wait(jobs),
        "failed_step": jobs.failed_step if failed and jobs else None,
        "failed_job_id": jobs.failed_job_id if failed and jobs else None,
        "reason": row["reason"] or waits_for or (jobs.error if failed and jobs else None),
    }


def show_run(tx: Tx, run_id: str, compiled: CompiledConfig) -> dict[str, Any]:
    """Return a run with its steps; `NotFound` if there is none."""
    row = runs.find_run(tx, run_id)
    if row is None:
        raise NotFound(f"there is no pipeline run {run_id}")
    jobs = runs.list_steps(tx, run_id, limit=MAX_STEPS + 1, max_bytes=MAX_DOCUMENT, tail=LOG_TAIL)
    left_out = len(jobs) > MAX_STEPS
    queued = [job["job_id"] for job in jobs if job["status"] == "queued"]
    held = describe_held_runs(tx, [run_id], compiled.tx_config)
    waiting = {**dict.fromkeys(queued, held.get(run_id)), **describe_waits(tx, queued)}
    waits_for = held.get(run_id) or describe_waiting_runs(tx, [run_id]).get(run_id)
    shown = [
        {**_read_documents(job, compiled.redactor), "waits_for": waiting.get(job["job_id"])}
        for job in jobs[:MAX_STEPS]
    ]
    steps = describe_steps(
        compiled.tx_config.router.pipelines.get(row["pipeline"]),
        shown,
        runs.list_splits(tx, run_id),
        is_open=row["status"] == "open" or left_out,
        conditions=explain_false_conditions(shown, row["pipeline"], compiled),
    )
    return {
        **summarize_run(row, runs.find_key_jobs(tx, [run_id]).get(run_id), waits_for),
        "steps": steps,
        "steps_left_out": left_out,
    }


def find_awaited(tx: Tx, run: Mapping[str, Any]) -> tuple[str, ...]:
    """What has to end before the run's tree can have ended; empty if the tree has ended."""
    if run["status"] == RunStatus.RUNNING:
        return (run["instance_id"],)
    unfinished = job_tree.find_unfinished(tx, run["instance_id"])
    return () if unfinished is None else (unfinished,)


def _read_documents(job: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    payload, result = (
        None if job[name] is None else orjson.loads(job[name]) for name in ("payload", "result")
    )
    return {**job, "payload": redactor.document(payload), "result": result}


def _queue_wait(jobs: KeyJobs | None) -> float | None:
    if jobs is None or jobs.first_started_at is None:
        return None
    queued, started = from_text(jobs.first_queued_at), from_text(jobs.first_started_at)
    # A claim that had begun before the job was committed may start it: its time is the earlier one.
    return max(0.0, _milliseconds(queued, started))


def _milliseconds(began: datetime, ended: datetime) -> float:
    return round((ended - began).total_seconds() * 1000, 1)
