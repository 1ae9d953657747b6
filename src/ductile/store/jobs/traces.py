"""The traces of jobs, pipeline runs and deliveries, and what their spans show."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from ductile.core.jobs.trace import TraceContext, context_of, parse_column, span_of_job
from ductile.store.engines.api import Row, Tx

MOST_ATTEMPTS = 20
"""How many attempts of a job have spans."""


def set_run_trace(tx: Tx, scope_id: str, context: TraceContext) -> None:
    tx.run("set_run_trace", id=scope_id, trace=context.to_column())


def set_delivery_trace(tx: Tx, delivery_id: int, context: TraceContext) -> None:
    tx.run("set_delivery_trace", id=str(delivery_id), trace=context.to_column())


def load_contexts(tx: Tx, job_ids: Sequence[str]) -> dict[str, TraceContext]:
    rows = tx.all("traces_of_jobs", ids=_given(job_ids))
    return {id: context_of(column, id, event_id) for id, column, event_id in rows}


def load_delivery_contexts(tx: Tx, ids: Sequence[int]) -> dict[int, TraceContext]:
    rows = tx.all("traces_of_deliveries", ids=_given([str(id) for id in ids]))
    return {id: found for id, column in rows if (found := parse_column(column)) is not None}


def context_of_parent(tx: Tx, job_id: str) -> TraceContext:
    """The context of what a job causes."""
    found = load_contexts(tx, [job_id]).get(job_id) or context_of(None, job_id, None)
    return found.below(span_of_job(job_id))


def load_ended_jobs(tx: Tx, job_ids: Sequence[str]) -> list[Row]:
    return tx.all("traced_jobs", ids=_given(job_ids))


def load_attempts(tx: Tx, jobs: Sequence[tuple[str, int]]) -> dict[str, list[Row]]:
    """The newest attempts of these jobs, which have so many, in their order."""
    found: dict[str, list[Row]] = {id: [] for id, _ in jobs}
    wanted = [
        f"{id}-{number}"
        for id, last in jobs
        for number in range(max(1, last - MOST_ATTEMPTS + 1), last + 1)
    ]
    for id, *row in tx.all("traced_attempts", ids=_given(wanted)):
        found[id.rpartition("-")[0]].append(tuple(row))
    for rows in found.values():
        rows.sort()
    return found


def load_ended_runs(tx: Tx, scope_ids: Sequence[str]) -> list[Row]:
    return tx.all("traced_runs", ids=_given(scope_ids))


def list_joined_jobs(tx: Tx, scope_id: str) -> list[str]:
    return [row[0] for row in tx.all("joined_jobs", scope_id=scope_id)]


def _given(ids: Sequence[str]) -> str:
    return orjson.dumps(list(ids)).decode()
