"""What a waiting job waits for, since when, until when, and the command that decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ductile.core.waits.parse import WaitKind
from ductile.store.engines.api import Tx
from ductile.store.jobs import runs
from ductile.store.waits import wait_rows
from ductile.store.waits.wait_rows import WaitRow


def describe_approvals(tx: Tx, rows: Sequence[WaitRow]) -> list[dict[str, Any]]:
    """Approvals as the API returns them."""
    instances = wait_rows.find_instance_ids(tx, rows)
    return [_describe_approval(row, instances.get(row.job_id)) for row in rows]


def _describe_approval(row: WaitRow, instance_id: str | None) -> dict[str, Any]:
    return {
        "id": row.id,
        "status": row.status,
        "title": row.title,
        "description": row.description,
        "pipeline": row.pipeline,
        "step": row.step_path,
        "instance_id": instance_id,
        "job_id": row.job_id,
        "created_at": row.created_at,
        "due_at": row.due_at,
        "on_timeout": row.on_timeout if row.due_at is not None else None,
        "ended_at": row.ended_at,
        "ended_by": row.ended_by,
        "comment": row.comment,
    }


def count_waits(tx: Tx) -> dict[str, int]:
    """The number of decisions that pipelines wait for, and of all steps that wait."""
    counts = {kind: count for kind, count, _ in tx.all("count_waits")}
    return {"approvals": counts.get(WaitKind.APPROVAL, 0), "waits": sum(counts.values())}


def describe_waits(tx: Tx, job_ids: Sequence[str]) -> dict[str, str]:
    """What each of these jobs waits for, by job; jobs that do not wait are left out."""
    return {row.job_id: describe_row(row) for row in wait_rows.list_open(tx, job_ids)}


def describe_waiting_runs(tx: Tx, run_ids: Sequence[str]) -> dict[str, str]:
    """By run: what its oldest waiting step waits for, and how many others wait."""
    jobs: dict[str, list[str]] = {}
    for run_id, job_id in runs.list_waiting_jobs(tx, run_ids):
        jobs.setdefault(run_id, []).append(job_id)
    first = describe_waits(tx, [waiting[0] for waiting in jobs.values()])
    found: dict[str, str] = {}
    for run_id, (job_id, *others) in jobs.items():
        more = f"; {len(others)} more of its steps wait" if others else ""
        if job_id in first:  # It may have ended between the two queries.
            found[run_id] = f"{first[job_id]}{more}"
    return found


def find_open_wait(tx: Tx, job_id: str) -> WaitRow | None:
    """What this job waits for; None if its wait has not begun or has ended."""
    return next(iter(wait_rows.list_open(tx, [job_id])), None)


def describe_row(row: WaitRow) -> str:
    """What a job waits for, and what an operator can do about it."""
    until = f", until {row.due_at}" if row.due_at is not None else ""
    since = f"since {row.created_at}{until}"
    match row.kind:
        case WaitKind.APPROVAL:
            how = f"decide with `ductile approval approve {row.id}` or `reject`"
            return f"it waits for the approval {row.title!r} {since}; {how}"
        case WaitKind.EVENT:
            condition = " that matches its `if`" if row.condition else ""
            return f"it waits for an event {row.event_type}{condition} {since}"
        case _:
            return f"its step waits {since}"
