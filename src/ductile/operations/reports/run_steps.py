"""The steps of a pipeline run: what each waits for, and why a step without a job did not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.core.pipelines.graph import SWITCH_SUFFIX, Node, NodeKind
from ductile.core.pipelines.pipeline import Pipeline

Step = dict[str, Any]
FAILED = frozenset(status.value for status in ENDED_BADLY) | {"timed_out", "failed"}
NO_CONDITIONS: Mapping[str, str] = MappingProxyType({})
NOT_RUN, WAITING = "not_run", "waiting"
SPLIT_STATUS = {"open": "running", "ended": "succeeded", "failed": "failed", "skipped": "skipped"}


def describe_steps(
    pipeline: Pipeline | None,
    jobs: Sequence[Mapping[str, Any]],
    splits: Sequence[Mapping[str, Any]],
    *,
    is_open: bool,
    conditions: Mapping[str, str] = NO_CONDITIONS,
) -> list[Step]:
    """One row per job of the run, per split, and per step that has no job.

    A job with `waits_for` is a step that waits for a decision, an event or a time. `conditions` has
    why the `if` of a step was false, by the step of its `core.switch`.
    Without the pipeline, which the configuration no longer has, only the jobs are known.
    """
    if pipeline is None:
        return [_job_row(job, "uses", ()) for job in jobs]
    sources = find_sources(pipeline)
    by_step: dict[str, list[Mapping[str, Any]]] = {}
    for job in jobs:
        by_step.setdefault(job["step"], []).append(job)
    scopes = {split["split"]: split for split in splits}
    rows: list[Step] = []
    states: dict[str, str] = {}
    for path in pipeline.paths():
        node, depends_on = pipeline.nodes[path], sources.get(path, ())
        if path in by_step:
            found = [_job_row(job, node.kind.value, depends_on) for job in by_step.pop(path)]
        elif path in scopes:
            found = [_split_row(node, scopes[path], depends_on)]
        else:
            found = [_missing_row(node, depends_on, states, conditions, is_open=is_open)]
        states[path] = found[-1]["status"]
        rows += found
    # Jobs of steps that the pipeline no longer has.
    return rows + [_job_row(job, "uses", ()) for found in by_step.values() for job in found]


def find_sources(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """By step: the steps that lead to it; the join of a split depends on its branches' ends."""
    found: dict[str, dict[str, None]] = {}
    for path in pipeline.paths():
        node = pipeline.nodes[path]
        for target in node.follows():
            if target.path is None or target.pipeline != pipeline.name:
                continue
            is_join = node.kind is NodeKind.SPLIT and target.path == node.next
            ends = _branch_ends(pipeline, node) if is_join else (path,)
            found.setdefault(target.path, {}).update(dict.fromkeys(ends))
    return {path: tuple(sources) for path, sources in found.items()}


def _branch_ends(pipeline: Pipeline, split: Node) -> Iterable[str]:
    """The last steps of the branches of a split."""
    waiting, seen, ends = [branch.entry for branch in split.branches], set[str](), []
    while waiting:
        path = waiting.pop(0)
        if path in seen:
            continue
        seen.add(path)
        node = pipeline.nodes[path]
        inner = {branch.entry for branch in node.branches}
        following = [
            target.path
            for target in node.follows()
            if target.path is not None and target.pipeline == pipeline.name
        ]
        if not set(following) - inner and not (inner and node.next):
            ends.append(path)
        waiting += following
    return ends


def _job_row(job: Mapping[str, Any], kind: str, depends_on: Sequence[str]) -> Step:
    waits_for = job.get("waits_for")
    left_out = ("step", "status", "waits_for")
    return {
        "step": job["step"],
        "kind": kind,
        "depends_on": list(depends_on),
        "status": WAITING if waits_for else job["status"],
        "reason": job["last_error"] if job["status"] in FAILED else waits_for,
        **{key: value for key, value in job.items() if key not in left_out},
    }


def _split_row(node: Node, scope: Mapping[str, Any], depends_on: Sequence[str]) -> Step:
    return {
        **_bare_row(node, depends_on),
        "status": SPLIT_STATUS[scope["status"]],
        "reason": scope["reason"],
        "created_at": scope["created_at"],
        "completed_at": scope["ended_at"],
    }


def _missing_row(
    node: Node,
    depends_on: Sequence[str],
    states: Mapping[str, str],
    conditions: Mapping[str, str],
    *,
    is_open: bool,
) -> Step:
    false = conditions.get(depends_on[0]) if len(depends_on) == 1 else None
    reason = false or _why_not(depends_on, states)
    if is_open and reason is None:
        waited = " and ".join(map(_name, depends_on))
        return {
            **_bare_row(node, depends_on),
            "status": WAITING,
            "reason": f"waits for {waited}" if waited else None,
        }
    fallback = f"no event of {' or '.join(map(_name, depends_on))} led here" if depends_on else None
    return {**_bare_row(node, depends_on), "status": NOT_RUN, "reason": reason or fallback}


def _why_not(depends_on: Sequence[str], states: Mapping[str, str]) -> str | None:
    """Why a step cannot run any more; None if it may, or if no event led to it."""
    failed = [path for path in depends_on if states.get(path) in FAILED]
    if failed:
        return f"{_name(failed[0])} failed"
    skipped = [path for path in depends_on if states.get(path) == NOT_RUN]
    if skipped and len(skipped) == len(depends_on):
        return f"{_name(skipped[0])} did not run"
    return None


def _name(path: str) -> str:
    """A step as users know it: the condition of one is a step of its own only inside."""
    guarded = path.removesuffix(SWITCH_SUFFIX)
    return path if guarded == path else f"the `if` of {guarded}"


def _bare_row(node: Node, depends_on: Sequence[str]) -> Step:
    empty = (
        "job_id",
        "branch",
        "attempt",
        "max_attempts",
        "parent_job_id",
        "created_at",
        "started_at",
        "completed_at",
        "next_retry_at",
        "last_error",
        "payload",
        "result",
        "log_tail",
    )
    return {
        "step": node.path,
        "kind": node.kind.value,
        "depends_on": list(depends_on),
        "plugin": node.plugin or None,
        "command": node.command if node.plugin else None,
        **dict.fromkeys(empty),
    }
