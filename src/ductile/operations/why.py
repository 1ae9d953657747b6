"""`job why`: why a job ran, waits, was skipped or deduplicated, and what it led to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.core.pipelines.graph import SWITCH_PLUGIN
from ductile.core.waits.parse import WaitKind
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import NotFound, dotted
from ductile.model import SubmittedBy
from ductile.operations.reports import waits_for
from ductile.operations.reports.conditions import describe_place, explain_condition
from ductile.operations.reports.failed_attempts import find_cause
from ductile.operations.reports.repair import (
    MOST_TYPES,
    find_failed_init,
    find_repair,
    find_unrouted,
    list_unrouted,
    named_types,
)
from ductile.operations.reports.waits_for import find_setting
from ductile.operations.waits.describe import find_open_wait
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import read

MOST_CHILDREN = 200
SHOWN_CHANGES = 10
MAX_TYPES = 8


def explain_job(
    ledger: Ledger,
    job_id: str,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    *,
    now: datetime,
    served: bool = True,
) -> dict[str, Any]:
    """The reasons for a job's state, and what the job led to; also for a pipeline instance.

    `served` says whether a gateway runs here.
    """
    answer = ledger.read(lambda tx: _why(tx, job_id, compiled, unready, now, served=served))
    if answer is None:
        raise NotFound(f"there is no job {job_id}")
    return answer


def _why(
    tx: Tx,
    job_id: str,
    compiled: CompiledConfig,
    unready: Mapping[str, str],
    now: datetime,
    *,
    served: bool,
) -> dict[str, Any] | None:
    job = read.describe_job(tx, job_id)
    if job is None:
        scopes = tx.dicts("scope", id=job_id)
        return _why_instance(scopes[0]) if scopes else None
    reasons = [_origin(job), *_schedule_of_run(tx, job)]
    explained = waits_for.with_reasons(tx, [job], compiled, unready, served=served, now=now)
    waits = explained[0]["waits_for"]
    if waits:
        cause = f", after: {job['last_error']}" if job.get("last_error") else ""
        reasons.append(f"It is queued: {waits}{cause}.")
        reasons += _describe_blocker(tx, job, compiled, waits)
    reasons += _changes(job["transitions"])
    if failure := find_cause(tx, job, compiled):
        reasons.append(failure.why)
    reasons += _own_condition(job, compiled)
    reasons += _consequences(tx, job, compiled)
    for drop in tx.dicts("dedupe_drops_of", id=job_id):
        reasons.append(
            f"{drop['created_at']} a {drop['submitted_by']} job with key "
            f"{drop['dedupe_key']!r} was dropped as a duplicate of this one."
        )
    run = find_repair(tx, job, compiled, waits, served=served, now=now)
    return {"job_id": job_id, "status": job["status"], "why": reasons, "run": run}


def _schedule_of_run(tx: Tx, job: Mapping[str, Any]) -> Iterator[str]:
    """The schedule of a pipeline that started the run, for its first jobs."""
    if job["submitted_by"] != SubmittedBy.SCHEDULER or not job.get("instance_id"):
        return
    for run in tx.dicts("scope", id=job["instance_id"]):
        if run["schedule_id"]:
            yield f"Schedule pipeline:{run['pipeline']}/{run['schedule_id']} started the run."


def _describe_blocker(
    tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig, waits_for: str
) -> Iterator[str]:
    """The place of what a queued job waits for: a limit, a failed `init`, a step that waits."""
    if init := find_failed_init(tx, job["plugin"]) if "its init failed" in waits_for else None:
        yield f"Its init is job {init['id']}; `ductile job why {init['id']}` explains it."
    if (at := find_setting(tx, job, compiled, waits_for)) is not None:
        yield f"The limit is {dotted(at)} ({describe_place(compiled, at)})."
    wait = find_open_wait(tx, job["id"])
    if wait is not None and wait.kind != WaitKind.APPROVAL:
        node = compiled.tx_config.router.node(wait.pipeline, wait.step_path)
        place = "" if node is None else f" ({describe_place(compiled, (*node.at, 'wait'))})"
        run = f"ductile pipeline cancel {job['instance_id']}"
        yield f"The step is {wait.pipeline}/{wait.step_path}{place}; `{run}` ends its run."


def _changes(transitions: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The first and the last state changes: a job that waits for resources may have hundreds."""
    if transitions and transitions[0]["older"]:
        yield f"... {transitions[0]['older']} changes of state, until"
    left_out = len(transitions) - 2 * SHOWN_CHANGES
    for place, change in enumerate(transitions):
        if SHOWN_CHANGES <= place < SHOWN_CHANGES + left_out:
            if place == SHOWN_CHANGES:
                yield f"... and {left_out} further changes of state, until"
            continue
        cause = f": {change['reason']}" if change["reason"] else ""
        yield f"{change['created_at']} {change['from_status']} → {change['to_status']}{cause}"


def _why_instance(scope: Mapping[str, Any]) -> dict[str, Any]:
    what = f"split {scope['split']} of pipeline" if scope["split"] else "pipeline"
    reasons = [
        f"This is not a job but an instance of {what} {scope['pipeline']}, {scope['status']}."
    ]
    if scope["reason"]:
        reasons.append(f"{scope['ended_at']} {scope['status']}: {scope['reason']}")
    run = f"ductile pipeline runs {scope['id']}" if scope["parent_id"] is None else None
    return {"job_id": scope["id"], "status": scope["status"], "why": reasons, "run": run}


def _origin(job: Mapping[str, Any]) -> str:
    by = job["submitted_by"]
    if job.get("replay_of"):
        return f"It replays job {job['replay_of']}, requested by {by}."
    if job.get("schedule_id"):
        return f"Schedule {job['plugin']}/{job['schedule_id']} fired; it was due at {job['slot']}."
    if job.get("join_of"):
        return f"Step {job['step_path']} of {job['pipeline']} joins split {job['join_of']}."
    parent = job.get("parent_job_id")
    if job.get("pipeline"):
        came = f" after job {parent}" if parent else f", which {by} started"
        return f"It is step {job['step_path']} of pipeline {job['pipeline']}{came}."
    if parent:
        return f"An event of job {parent} was routed to {job['plugin']}."
    return f"It was submitted by {by} at {job['created_at']}."


def _own_condition(job: Mapping[str, Any], compiled: CompiledConfig) -> Iterator[str]:
    """For a job of `core.switch`, the verdict of its `if` and the values that decided it."""
    why = explain_condition(job, job.get("pipeline") or "", job.get("step_path"), compiled)
    if why is not None:
        yield why


def _consequences(tx: Tx, job: Mapping[str, Any], compiled: CompiledConfig) -> Iterator[str]:
    """Where its events were routed, and which were not."""
    children = tx.dicts("children", id=job["id"], limit=MOST_CHILDREN + 1)
    for child in children[:MOST_CHILDREN]:
        step = f", step {child['step_path']} of {child['pipeline']}" if child["pipeline"] else ""
        yield f"It led to job {child['id']} of {child['plugin']}{step} ({child['status']})."
        if child["plugin"] == SWITCH_PLUGIN and (switch := read.describe_job(tx, child["id"])):
            yield from _own_condition(switch, compiled)
    if len(children) > MOST_CHILDREN:
        yield "It led to further jobs."
    yield from _about_events(tx, job["id"], compiled)
    if job["status"] == "succeeded":
        yield from _unmatched_events(job, compiled)
    yield from _joins(tx, job["id"])


def _unmatched_events(job: Mapping[str, Any], compiled: CompiledConfig) -> Iterator[str]:
    """The types of its events that no route, pipeline, step or wait names."""
    for event in find_unrouted(job, compiled):
        named = named_types(compiled, job["plugin"])
        place = f" ({describe_place(compiled, event.at)})" if event.at else ""
        hint = f"; types that one names: {', '.join(sorted(named)[:MAX_TYPES])}" if named else ""
        if event.close == event.kind:
            hint = f"; one names this type, but only of another plugin{place}"
        elif event.close is not None:
            hint = f"; the nearest that one names is {event.close!r}{place}"
        yield f"Its event {event.kind} was not routed: no route or pipeline matches it{hint}."
    more = len(list_unrouted(job, compiled)) - MOST_TYPES
    if more > 0:
        yield f"Further types of its events were not routed: {more}."


def _about_events(tx: Tx, job_id: str, compiled: CompiledConfig) -> Iterator[str]:
    """The events of a job that were routed without starting a job."""
    for notice in tx.dicts("notices_of_job", id=job_id):
        item = orjson.loads(notice["payload"])
        if notice["type"] == "event.unrouted":
            pipeline = compiled.tx_config.router.pipelines.get(item["pipeline"])
            has_if = pipeline is not None and pipeline.condition is not None
            place = (
                f" ({describe_place(compiled, (*pipeline.at, 'if'))})"
                if pipeline and has_if
                else ""
            )
            yield f"Its event did not start pipeline {item['pipeline']}: {item['reason']}{place}"
        elif notice["type"] == "event.deduplicated":
            pipeline = item["pipeline"]
            target = f"pipeline {pipeline}" if pipeline else f"plugin {item['plugin']}"
            yield (
                f"Its event {item['event_type']} for {target} was dropped as a duplicate of job "
                f"{item['existing_job_id']}, which has the key {item['dedupe_key']!r}."
            )


def _joins(tx: Tx, job_id: str) -> Iterator[str]:
    """The joins that did not run, or not yet, of the splits around a job and after it."""
    for split in tx.dicts("splits_of_job", id=job_id):
        join = f"Step {split['join_step']}, which joins split {split['split']},"
        if split["join_step"] and split["status"] == "failed":
            yield f"{join} did not run: {split['reason'] or 'a branch failed'}"
        elif split["join_step"] and split["status"] == "open":
            yield f"{join} waits for the end of all branches."
