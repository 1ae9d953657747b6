"""The invariants of the ledger's rows. Pure: each check yields what is wrong with a row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.retry_policy import OUTSTANDING
from ductile.core.jobs.state_machine import EDGES, ENDED
from ductile.core.values.json_values import are_equal
from ductile.model import JobStatus, Json

CHANGING_PATHS = frozenset({"ductile.route_depth"})
"""Paths that differ between a context and its parent."""
IDLE_SCOPE = "is open, but nothing in it is queued, running or open"
NOT_AN_OBJECT = "is not a JSON object"


@dataclass(frozen=True, slots=True)
class RetainedSince:
    """The time from which each table is complete, as older rows may be pruned; None if empty."""

    transitions: str | None
    logs: str | None
    jobs: str | None


def check_job(
    row: Mapping[str, Any], transitions: Sequence[tuple[str, str]], since: RetainedSince
) -> Iterator[str]:
    """A row of `job_queue`, with its transitions in the order in which they happened."""
    yield from _check_columns(row)
    yield from _check_transitions(row, transitions, since.transitions)
    status = row["status"]
    if status in ENDED and since.logs is not None and (row["completed_at"] or "") > since.logs:
        logged = {row["logged"], row["logged_before"], row["logged_unrun"]} - {None}
        if not logged:
            yield "has ended, but has no row in job_log"
        elif status not in logged:
            yield f"is {status}, but its last row in job_log is {', '.join(sorted(logged))}"
    if row["lost_parent"] and since.jobs is not None and row["created_at"] > since.jobs:
        yield f"its parent {row['lost_parent']} is missing, but was not pruned"
    for what in ("scope", "context"):
        if row[f"lost_{what}"]:
            yield f"its {what} {row[f'lost_{what}']} does not exist"
    if status == JobStatus.RUNNING and row["lost_owner"]:
        yield f"its owner {row['lost_owner']} is not a known boot"


def _check_columns(row: Mapping[str, Any]) -> Iterator[str]:
    status = row["status"]
    if status == JobStatus.TIMED_OUT:
        yield "has the status timed_out, which is never a final one"
    if status in ENDED and row["completed_at"] is None:
        yield f"is {status}, but has no completed_at"
    if status in (JobStatus.QUEUED, JobStatus.RUNNING) and row["completed_at"] is not None:
        yield f"is {status}, but has a completed_at"
    if status != JobStatus.RUNNING and row["owner"] is not None:
        yield f"is {status}, but has an owner"
    if status == JobStatus.RUNNING and row["owner"] is None:
        yield "is running, but has no owner"
    if status != JobStatus.QUEUED and row["next_retry_at"] is not None:
        yield f"is {status}, but has a next_retry_at"
    elif row["lost_wait"]:
        yield "is parked, but neither a wait nor a limit of its pipeline holds it"
    if row["lost_key"]:
        yield "is set aside, but no row of set_aside_keys leads to it"


def _check_transitions(
    row: Mapping[str, Any], transitions: Sequence[tuple[str, str]], since: str | None
) -> Iterator[str]:
    complete = since is not None and row["created_at"] > since
    status = JobStatus.QUEUED.value if complete or not transitions else transitions[0][0]
    for start, end in transitions:
        if start != status:
            yield f"went from {start} to {end} while it was {status}"
        elif (start, end) not in EDGES:
            yield f"went from {start} to {end}, which is not a legal transition"
        status = end
    if (transitions or complete) and status != row["status"]:
        yield f"is {row['status']}, but its transitions end in {status}"


def check_log(job_id: str | None, attempt: int, named: int, reached: int | None) -> Iterator[str]:
    """A row of `job_log`; `reached` is its job's attempt, None if the job is pruned."""
    if job_id is None:
        return
    if not named:
        yield f"is not named after job {job_id}, attempt {attempt}"
    if reached is not None and attempt > reached:
        yield f"has attempt {attempt}, but its job is at attempt {reached}"


def check_context(parent_id: str | None, own: str, inherited: str | None) -> Iterator[str]:
    """A row of `event_context`: it contains everything of its parent's, `inherited`."""
    child = _parse_object(own)
    if child is None:
        yield NOT_AN_OBJECT
    if parent_id is None:
        return
    if inherited is None:
        yield f"its parent {parent_id} does not exist"
        return
    parent = _parse_object(inherited)
    if child is not None and parent is not None:
        lost = set(_missing_paths(child, parent)) - CHANGING_PATHS
        if lost:
            yield f"does not contain its parent's {', '.join(sorted(lost)[:3])}"


def _missing_paths(child: Mapping[str, Json], parent: Mapping[str, Json]) -> Iterator[str]:
    """The paths of `parent` that `child` has lost or changed."""
    for key, value in parent.items():
        mine = child.get(key)
        if isinstance(value, dict) and isinstance(mine, dict):
            yield from (f"{key}.{path}" for path in _missing_paths(mine, value))
        elif key not in child or not are_equal(mine, value):
            yield key


def check_scope(
    status: str, ended_at: str | None, parent: str | None, context: str | None, busy: int
) -> Iterator[str]:
    """A row of `scopes`; `parent` and `context` are set if it names one that does not exist."""
    if status == "open" and not busy:
        yield IDLE_SCOPE
    if (status == "open") is not (ended_at is None):
        yield f"is {status}, but its ended_at is {ended_at or 'not set'}"
    if parent:
        yield f"its parent {parent} does not exist"
    if context:
        yield f"its context {context} does not exist"


def check_delivery(
    status: str, attempts: int, owner: str | None, is_removed: bool = False
) -> Iterator[str]:
    """A row of `webhook_deliveries` or `relay_deliveries`.

    A delivery of a removed webhook (`is_removed`) is dead without a send.
    """
    if status not in OUTSTANDING and owner is not None:
        yield f"is {status}, but has an owner"
    unsent = status == "failed" or (status == "dead" and not is_removed)
    if attempts < 0 or (unsent and attempts == 0):
        yield f"is {status} after {attempts} failed sends"


def check_state(text: str) -> Iterator[str]:
    """A row of `plugin_state`."""
    if _parse_object(text) is None:
        yield NOT_AN_OBJECT


def _parse_object(text: str) -> dict[str, Json] | None:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None
