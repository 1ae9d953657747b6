"""What the ledger promises of its rows. Pure: rows in, what is wrong with them out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ductile.core.delivery.retry_policy import OUTSTANDING
from ductile.core.jobs.state_machine import EDGES, ENDED
from ductile.core.values.json_values import are_equal
from ductile.model import JobStatus, Json
from ductile.record import dataclass

COUNTS_DOWN = frozenset({"ductile.route_depth"})
"""What differs between a context and its parent."""
IDLE_SCOPE = "is open, but nothing in it is queued, running or open"
NO_OBJECT = "is no JSON object"


@dataclass(frozen=True, slots=True)
class Kept:
    """From when on a log is whole, for what is older may be pruned; None where it is empty."""

    transitions: str | None
    logs: str | None
    jobs: str | None


def job(row: Mapping[str, Any], changes: Sequence[tuple[str, str]], kept: Kept) -> Iterator[str]:
    """A row of `job_queue`, its changes of state in the order in which they happened."""
    yield from _shape(row)
    yield from _chain(row, changes, kept.transitions)
    status = row["status"]
    if status in ENDED and kept.logs is not None and (row["completed_at"] or "") > kept.logs:
        logged = {row["logged"], row["logged_before"], row["logged_unrun"]} - {None}
        if not logged:
            yield "has ended, but has no row in job_log"
        elif status not in logged:
            yield f"is {status}, but its last row in job_log is {', '.join(sorted(logged))}"
    if row["lost_parent"] and kept.jobs is not None and row["created_at"] > kept.jobs:
        yield f"its parent {row['lost_parent']} is gone, and was not pruned"
    for what in ("scope", "context"):
        if row[f"lost_{what}"]:
            yield f"its {what} {row[f'lost_{what}']} does not exist"
    if status == JobStatus.RUNNING and row["lost_owner"]:
        yield f"its owner {row['lost_owner']} is no boot"


def _shape(row: Mapping[str, Any]) -> Iterator[str]:
    status = row["status"]
    if status == JobStatus.TIMED_OUT:
        yield "rests in timed_out, which a job only passes through"
    if status in ENDED and row["completed_at"] is None:
        yield f"is {status}, but has no completed_at"
    if status in (JobStatus.QUEUED, JobStatus.RUNNING) and row["completed_at"] is not None:
        yield f"is {status}, but has a completed_at"
    if status != JobStatus.RUNNING and row["owner"] is not None:
        yield f"is {status}, but has an owner"
    if status == JobStatus.RUNNING and row["owner"] is None:
        yield "is running, but nobody owns it"
    if status != JobStatus.QUEUED and row["next_retry_at"] is not None:
        yield f"is {status}, but waits for a retry"


def _chain(
    row: Mapping[str, Any], changes: Sequence[tuple[str, str]], kept: str | None
) -> Iterator[str]:
    whole = kept is not None and row["created_at"] > kept
    status = JobStatus.QUEUED.value if whole or not changes else changes[0][0]
    for start, end in changes:
        if start != status:
            yield f"went from {start} to {end} while it was {status}"
        elif (start, end) not in EDGES:
            yield f"went from {start} to {end}, which is no legal change"
        status = end
    if (changes or whole) and status != row["status"]:
        yield f"is {row['status']}, but its transitions end in {status}"


def log(job_id: str | None, attempt: int, named: int, reached: int | None) -> Iterator[str]:
    """A row of `job_log`; `reached` is its job's attempt, None once that is pruned."""
    if job_id is None:
        return
    if not named:
        yield f"is not named after job {job_id}, attempt {attempt}"
    if reached is not None and attempt > reached:
        yield f"is of an attempt that its job, at {reached}, has not come to"


def context(parent_id: str | None, own: str, inherited: str | None) -> Iterator[str]:
    """A row of `event_context` contains its parent's, `inherited`."""
    child = _object(own)
    if child is None:
        yield NO_OBJECT
    if parent_id is None:
        return
    if inherited is None:
        yield f"its parent {parent_id} does not exist"
        return
    parent = _object(inherited)
    if child is not None and parent is not None:
        lost = set(_lacking(child, parent)) - COUNTS_DOWN
        if lost:
            yield f"does not contain its parent's {', '.join(sorted(lost)[:3])}"


def _lacking(child: Mapping[str, Json], parent: Mapping[str, Json]) -> Iterator[str]:
    """The paths of `parent` that `child` has lost or changed."""
    for key, value in parent.items():
        mine = child.get(key)
        if isinstance(value, dict) and isinstance(mine, dict):
            yield from (f"{key}.{path}" for path in _lacking(mine, value))
        elif key not in child or not are_equal(mine, value):
            yield key


def scope(
    status: str, ended_at: str | None, parent: str | None, context: str | None, busy: int
) -> Iterator[str]:
    """A row of `scopes`; `parent` and `context` are those that it names and that are not there."""
    if status == "open" and not busy:
        yield IDLE_SCOPE
    if (status == "open") is not (ended_at is None):
        yield f"is {status}, but its ended_at is {ended_at or 'not set'}"
    if parent:
        yield f"its parent {parent} does not exist"
    if context:
        yield f"its context {context} does not exist"


def delivery(status: str, attempts: int, owner: str | None) -> Iterator[str]:
    """A row of `webhook_deliveries` or `relay_deliveries`."""
    if status not in OUTSTANDING and owner is not None:
        yield f"is {status}, but somebody sends it"
    if attempts < 0 or (status in ("failed", "dead") and attempts == 0):
        yield f"is {status} after {attempts} failed sends"


def state(text: str) -> Iterator[str]:
    """A row of `plugin_state`."""
    if _object(text) is None:
        yield NO_OBJECT


def _object(text: str) -> dict[str, Json] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
