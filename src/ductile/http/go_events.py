"""Events of the stream in the form of the Go program: its names, and data without an envelope."""

from __future__ import annotations

from typing import Any

import orjson

from ductile.store.engines.api import StoredNotice

NAMES = {
    "job.queued": "job.enqueued",
    "job.retrying": "job.retry_scheduled",
    "job.succeeded": "job.completed",
    "job.dead": "job.failed",
}
"""Names that differ; other events keep theirs."""
OWN_TOPICS = frozenset({"jobs", "pipelines", "events", "breakers", "flow", "relay"})
"""Topics of the gateway's own events. Agents choose the types and fields of the others."""
ROUTED = "router.enqueued"
"""The name of `job.queued` for a job that follows from another one or starts a pipeline."""
SUMMARIES = {"job.failed": "Job failed", "job.timed_out": "Job timed out"}


def encode_go_event(notice: StoredNotice) -> str:
    """Return the server-sent event of a notice."""
    payload = orjson.loads(notice.payload)
    # The data of an agent's event may be any JSON.
    data = payload if isinstance(payload, dict) else {"data": payload}
    name = notice.type
    known = {key: value for key, value in data.items() if value is not None}
    if notice.topic in OWN_TOPICS:
        name = _name(notice.type, known)
        known = _translate(name, known)
    text = orjson.dumps({"at": notice.created_at, **known}).decode()
    return f"id: {notice.position}\nevent: {name}\ndata: {text}\n\n"


def _name(type: str, data: dict[str, Any]) -> str:
    if type == "job.queued" and (data.get("parent_job_id") or data.get("pipeline")):
        return ROUTED
    return NAMES.get(type, type)


def _translate(name: str, data: dict[str, Any]) -> dict[str, Any]:
    known = dict(data)
    if isinstance(known.get("duration_ms"), float):
        known["duration_ms"] = round(known["duration_ms"])
    if isinstance(known.get("step"), str):
        known["step_id"] = known["step"].rpartition(".")[2]
    if name == "job.skipped" and "error" in known:
        known["reason"] = known["error"]
    if name in SUMMARIES:
        reason = f": {known['error']}" if "error" in known and name == "job.failed" else ""
        known["message"] = known["text"] = f"{SUMMARIES[name]} [{known.get('plugin', '')}]{reason}"
    return known
