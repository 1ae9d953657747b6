"""What happened, for whoever asks: the graph of a job, and why it is as it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ductile.core.redact import Redactor
from ductile.errors import NotFound
from ductile.runtime import report
from ductile.runtime.blueprint import Blueprint
from ductile.store.ledger import Ledger, Tx

LARGEST_GRAPH = 2000


def tree(ledger: Ledger, job_id: str, redactor: Redactor) -> dict[str, Any]:
    """The whole graph that a job belongs to, from its root, with the baggage of each hop."""
    rows = ledger.read(lambda tx: _rows(tx, job_id))
    if not rows:
        raise NotFound(f"there is no job {job_id}")
    nodes = {row["job_id"]: row for row in (_node(row, redactor) for row in rows)}
    root = None
    for node in nodes.values():
        parent = nodes.get(node["parent_job_id"])
        if parent is None:
            root = root or node
        else:
            parent["children"].append(node)
    assert root is not None
    _baggage_added(root, {})
    return root


def _rows(tx: Tx, job_id: str) -> list[dict[str, Any]]:
    rows = tx.dicts("lineage", id=job_id, limit=LARGEST_GRAPH)
    for row in rows:
        row["log"] = tx.dicts("logs_of_jobs", id=row["id"])
        context = tx.one("context", id=row["event_context_id"] or "")
        row["context"] = orjson.loads(context[0]) if context else {}
    return rows


def _node(row: Mapping[str, Any], redactor: Redactor) -> dict[str, Any]:
    log = row["log"]
    last = log[-1] if log else None
    return {
        "job_id": row["id"],
        "plugin": row["plugin"],
        "command": row["command"],
        "status": row["status"],
        "pipeline": row["pipeline"] or None,
        "step": row["step_path"] or None,
        "branch": row["branch"] or None,
        "join_of": row["join_of"],
        "replay_of": row["replay_of"],
        "parent_job_id": row["parent_job_id"],
        "source_event_id": row["source_event_id"],
        "hops": row["hops"],
        "attempt": row["attempt"],
        "created_at": row["created_at"],
        "started_at": row["started_at"],
        "completed_at": row["completed_at"],
        "duration_ms": last["duration_ms"] if last else None,
        "last_error": row["last_error"],
        "attempts": [_attempt(entry) for entry in log],
        "result": _document(last["result"]) if last else None,
        "context": redactor.document(row["context"]),
        "children": [],
    }


def _attempt(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in ("result", "job_id")}


def _document(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def _baggage_added(node: dict[str, Any], inherited: Mapping[str, Any]) -> None:
    """Say what each hop added; the whole of the context would be said again and again."""
    context = node.pop("context")
    node["baggage_added"] = {
        key: value
        for key, value in context.items()
        if key != "ductile" and inherited.get(key) != value
    }
    for child in node["children"]:
        _baggage_added(child, {**inherited, **context})


def why(
    ledger: Ledger, job_id: str, blueprint: Blueprint, unready: Mapping[str, str]
) -> dict[str, Any]:
    """Why a job ran, waits, was skipped, deduplicated, or led to nothing."""

    def work(tx: Tx) -> tuple[Any, ...]:
        return (
            tx.dicts("job", id=job_id),
            tx.dicts("notices_of_job", id=job_id),
            tx.dicts("drops_onto", id=job_id),
            tx.dicts("job_transitions", id=job_id),
        )

    rows, told, drops, transitions = ledger.read(work)
    if not rows:
        raise NotFound(f"there is no job {job_id}")
    job = rows[0]
    reasons = [_origin(job)]
    waits = report.waits_for(job, blueprint, unready)
    if waits:
        reasons.append(f"It waits: {waits}.")
    for step in transitions:
        cause = f": {step['reason']}" if step["reason"] else ""
        reasons.append(f"{step['created_at']} {step['from_status']} → {step['to_status']}{cause}")
    for notice in told:
        if notice["type"] == "event.unrouted":
            item = orjson.loads(notice["payload"])
            reasons.append(f"Its event did not start pipeline {item['pipeline']}: {item['reason']}")
    for drop in drops:
        reasons.append(
            f"{drop['created_at']} a {drop['submitted_by']} job with key "
            f"{drop['dedupe_key']!r} was dropped in favour of this one."
        )
    return {"job_id": job_id, "status": job["status"], "why": reasons}


def _origin(job: Mapping[str, Any]) -> str:
    by = job["submitted_by"]
    if job["schedule_id"]:
        return f"Schedule {job['plugin']}/{job['schedule_id']} fired its slot {job['slot']}."
    if job["join_of"]:
        return f"Step {job['step_path']} of {job['pipeline']} joins split {job['join_of']}."
    if job["pipeline"]:
        came = f" after job {job['parent_job_id']}" if job["parent_job_id"] else ""
        return f"It is step {job['step_path']} of pipeline {job['pipeline']}{came}."
    if job["parent_job_id"]:
        return f"An event of job {job['parent_job_id']} was routed to {job['plugin']}."
    return f"It was submitted by {by} at {job['created_at']}."
