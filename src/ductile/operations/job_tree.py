"""The graph that a job belongs to: its ancestors and descendants, with attempts and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import orjson

from ductile.core.jobs.limits import PAGE_BYTES, size
from ductile.core.pipelines.graph import SWITCH_PLUGIN
from ductile.core.values.redact import Redactor
from ductile.errors import NotFound
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import read

LARGEST_GRAPH = 2000
DEEPEST_NEST = 60
"""Maximum levels of a nested tree: JSON readers limit the depth, a chain of jobs has no limit."""

CONTEXTS = ("entered_context_id", "event_context_id")
LARGE = ("last_error", "attempts", "result")
"""Parts of a node that are left out when the response would become too large."""
SMALL_PARTS = 200
"""Bytes of an attempt without its error text."""

Node = dict[str, Any]


def graph(
    ledger: Ledger, job_id: str, redactor: Redactor, *, by_creation: bool = False
) -> list[Node]:
    """Every job of the graph that a job belongs to, parents first, each with its `depth`.

    With `by_creation` the jobs are in the order in which they were created.
    That is its root with all descendants and, if the root is one of several first jobs of a
    pipeline instance, the others too. If there may be more jobs, the first one has `more`. Of each
    node `left_out` names what was too large; asking for that job returns it.
    """
    found = ledger.read(lambda tx: _read_nodes(tx, job_id, redactor))
    if not found:
        raise NotFound(f"there is no job {job_id}")
    in_order = list(_in_order(found))
    nodes = found if by_creation else in_order
    if len(nodes) >= LARGEST_GRAPH:
        nodes[0]["more"] = True
    return nodes


def tree(ledger: Ledger, job_id: str, redactor: Redactor) -> Node:
    """The same graph, nested below the root of that job."""
    nodes = graph(ledger, job_id, redactor)
    by_id = {node["job_id"]: node for node in nodes}
    for node in nodes:
        node["children"] = []
    for node in nodes:
        parent = by_id.get(node["parent_job_id"])
        if parent is None:
            continue
        if node["depth"] < DEEPEST_NEST:
            parent["children"].append(node)
        else:
            parent["children_left_out"] = parent.get("children_left_out", 0) + 1
    root = by_id[job_id]
    while root["parent_job_id"] in by_id:
        root = by_id[root["parent_job_id"]]
    return root


def family(tx: Tx, job_id: str) -> list[dict[str, Any]]:
    """The rows of that graph, in the order of the queue.

    Of a graph that is too large, the ancestors and descendants of the job come first.
    """
    return tx.dicts("lineage", id=job_id, limit=LARGEST_GRAPH)


def instance(tx: Tx, instance_id: str) -> dict[str, Any]:
    """A pipeline instance, its jobs, and the response of the last one."""
    scopes = tx.dicts("scope", id=instance_id)
    if not scopes or scopes[0]["split"]:
        raise NotFound(f"there is no pipeline instance {instance_id}")
    scope = scopes[0]
    found = tx.dicts("jobs_of_instance", id=instance_id, limit=LARGEST_GRAPH + 1)
    last = tx.one("result_of_instance", id=instance_id, switch=SWITCH_PLUGIN)
    return {
        "instance_id": instance_id,
        "pipeline": scope["pipeline"],
        "status": {"ended": "succeeded"}.get(scope["status"], scope["status"]),
        "reason": scope["reason"],
        "created_at": scope["created_at"],
        "ended_at": scope["ended_at"],
        "jobs": found[:LARGEST_GRAPH],
        "jobs_left_out": len(found) > LARGEST_GRAPH,
        "result": _document(last[0]) if last else None,
    }


def find_unfinished(tx: Tx, instance_id: str) -> str | None:
    """The newest queued or running job that descends from a pipeline instance.

    Those are its own jobs, and all that follow from them by routes and other pipelines.
    """
    found = tx.one("unfinished_of_instance", id=instance_id)
    return None if found is None else str(found[0])


def _read_nodes(tx: Tx, job_id: str, redactor: Redactor) -> list[Node]:
    rows = family(tx, job_id)
    if not rows:
        pruned = read.describe_job(tx, job_id)
        return [] if pruned is None else [_pruned(pruned)]
    logs: dict[str, list[dict[str, Any]]] = {}
    for entry in tx.dicts("logs_of_jobs", ids=_array(row["id"] for row in rows)):
        logs.setdefault(entry["job_id"], []).append(entry)
    # The requested job is returned in full, so that whatever is left out can be read.
    requested_first = sorted(rows, key=lambda row: row["id"] != job_id)
    budget = _Budget(PAGE_BYTES)
    included = {}
    for row in requested_first:
        log = logs.get(row["id"], [])
        is_requested = row["id"] == job_id
        included[row["id"]] = {
            name for name, size in _sizes(row, log) if is_requested or budget.takes(size)
        }
    _load_results(tx, [logs[id][-1] for id in logs if "result" in included[id]])
    contexts = _contexts(tx, requested_first)
    return [
        _node(row, logs.get(row["id"], []), included[row["id"]], contexts, redactor) for row in rows
    ]


class _Budget:
    """The bytes that a response has left."""

    def __init__(self, size: int) -> None:
        self._left = size

    def takes(self, size: int) -> bool:
        """Reserve `size` bytes; False if they do not fit."""
        fits = size <= self._left
        self._left -= size if fits else 0
        return fits


def _sizes(row: Mapping[str, Any], log: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    """The parts of a node that may be large, with their sizes."""
    yield "last_error", size(row["last_error"] or "")
    yield "attempts", sum(size(entry["last_error"] or "") + SMALL_PARTS for entry in log)
    yield "result", log[-1]["result_size"] if log else 0


def _load_results(tx: Tx, entries: Sequence[dict[str, Any]]) -> None:
    """Read the results that were too large to be read with the log rows."""
    large = {
        entry["id"]: entry for entry in entries if entry["result_size"] and not entry["result"]
    }
    if large:
        for id, text in tx.all("results_of_attempts", ids=_array(large)):
            large[id]["result"] = text


def _contexts(tx: Tx, requested_first: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The contexts by id; None for one that does not fit."""
    named = [row[key] for row in requested_first for key in CONTEXTS if row[key] is not None]
    asked = [requested_first[0][key] for key in CONTEXTS]
    known = {row[0]: row for row in tx.all("context_sizes", ids=_array(set(named)))}
    budget = _Budget(PAGE_BYTES)
    there = [id for id in dict.fromkeys(named) if id in known]
    fits = {id for id in there if id in asked or budget.takes(known[id][1])}
    texts: dict[str, str | None] = {id: text for id, _, text in known.values() if id in fits}
    large = [id for id, text in texts.items() if text is None]
    texts |= dict(tx.all("contexts_by_id", ids=_array(large))) if large else {}
    return {id: _document(texts.get(id)) for id in known}


def _array(ids: Iterable[str]) -> str:
    return orjson.dumps(list(ids)).decode()


def _node(
    row: Mapping[str, Any],
    log: list[dict[str, Any]],
    included: Set[str],
    contexts: Mapping[str, Mapping[str, Any] | None],
    redactor: Redactor,
) -> Node:
    last = log[-1] if log else None
    # A context that was pruned is empty.
    entered, own = (contexts.get(row[key], {}) for key in CONTEXTS)
    more = None if entered is None or own is None else added(entered, own)
    left_out = [name for name in LARGE if name not in included]
    left_out += ["baggage_added"] if more is None else []
    node = {
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
        "submitted_by": row["submitted_by"],
        "hops": row["hops"],
        "attempt": row["attempt"],
        "created_at": row["created_at"],
        "started_at": row["started_at"],
        "completed_at": row["completed_at"],
        "duration_ms": last["duration_ms"] if last else None,
        "last_error": row["last_error"] if "last_error" in included else None,
        "attempts": [_attempt(entry) for entry in log] if "attempts" in included else [],
        "result": _document(last["result"]) if last and "result" in included else None,
        "baggage_added": {} if more is None else redactor.document(more),
    }
    return {**node, "left_out": left_out} if left_out else node


def _pruned(job: Mapping[str, Any]) -> Node:
    """What remains in the log of a job that was pruned."""
    kept = ("plugin", "command", "status", "parent_job_id", "source_event_id", "submitted_by")
    times = ("attempt", "created_at", "started_at", "completed_at", "duration_ms", "last_error")
    attempts = [_attempt(entry) for entry in job["attempts"]]
    node = {"job_id": job["id"], **{key: job.get(key) for key in (*kept, *times)}}
    return {**node, "attempts": attempts, "result": job["result"], "pruned": True}


def _attempt(entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("attempt", "status", "started_at", "completed_at", "duration_ms", "last_error")
    return {key: entry[key] for key in kept}


def _document(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def added(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The baggage of `after` that `before` lacks, without the core's own part of the context."""
    more = {}
    for key, value in after.items():
        was = before.get(key)
        if key == "ductile" or was == value:
            continue
        if isinstance(value, dict) and isinstance(was, dict):
            value = added(was, value)
        more[key] = value
    return more


def _in_order(nodes: list[Node]) -> Iterator[Node]:
    """Depth first, siblings in the order of the queue."""
    known = {node["job_id"] for node in nodes}
    below: dict[str | None, list[Node]] = {}
    for node in nodes:
        parent = node["parent_job_id"]
        below.setdefault(parent if parent in known else None, []).append(node)
    waiting = [(node, 0) for node in reversed(below.get(None, []))]
    while waiting:
        node, depth = waiting.pop()
        node["depth"] = depth
        yield node
        waiting += [(child, depth + 1) for child in reversed(below.get(node["job_id"], []))]
