"""Explanations with `-v`: how steps are resolved, where baggage comes from; and the conditions of
steps, which are jobs of `core.switch`, folded into the steps that they decide about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ductile.cli import output

Row = Mapping[str, Any]
Note = Callable[[str], None]
SWITCH_PLUGIN = "core.switch"
"""The same as in `core.pipelines.graph`, whose imports would slow down every `job list`."""


def is_plain_switch(job: Row) -> bool:
    """Return whether a job only evaluated the `if` of a step, or is about to."""
    return job["plugin"] == SWITCH_PLUGIN and job["status"] in ("queued", "running", "succeeded")


def fold_run(steps: Iterable[Row]) -> list[Row]:
    """The steps of a run without conditions; a condition that could not be evaluated stays."""
    plain = ("succeeded", "queued", "running", "waiting", "not_run")
    return [one for one in steps if one["kind"] != "switch" or one["status"] not in plain]


def hide_switches(jobs: Iterable[Row]) -> list[Row]:
    """Return the jobs without plain switches, and print how many were left out."""
    every = list(jobs)
    shown = [job for job in every if not is_plain_switch(job)]
    if left := len(every) - len(shown):
        what = output.format_count(left, "evaluated condition")
        output.print_stderr(f"not shown: {what} (show with --plugin {SWITCH_PLUGIN}, or --json)")
    return shown


def fold_graph(nodes: Sequence[Row], shown_id: str) -> list[Row]:
    """Return a graph without plain switches; the jobs below them move up."""
    hidden = {n["job_id"] for n in nodes if is_plain_switch(n) and n["job_id"] != shown_id}
    parents = {node["job_id"]: node.get("parent_job_id") for node in nodes}

    def count_hidden_above(job_id: str) -> int:
        count, above = 0, parents.get(job_id)
        while above is not None:
            count += above in hidden
            above = parents.get(above)
        return count

    return [
        {**node, "depth": max(0, node["depth"] - count_hidden_above(node["job_id"]))}
        for node in nodes
        if node["job_id"] not in hidden
    ]


def fold_steps(steps: Sequence[Row]) -> list[Row]:
    """Return the steps of a pipeline without switches; each has the `if` that decides about it.

    Names of switches are replaced by those of the steps that follow if the condition is true.
    """
    switches = {step["step"]: step for step in steps if step["kind"] == "switch"}
    conditions = {step["next"]: step["if"] for step in switches.values()}

    def resolve(path: str | None) -> str | None:
        while path in switches:
            path = switches[path]["next"]
        return path

    return [
        {
            **step,
            "if": conditions.get(step["step"], step["if"]),
            "next": resolve(step["next"]),
            "branches": {label: resolve(entry) for label, entry in step["branches"].items()},
        }
        for step in steps
        if step["step"] not in switches
    ]


def describe_action(step: Row) -> str:
    """Return what a step runs."""
    if step["kind"] == "uses":
        return f"{step['plugin']}.{step['command']}"
    return f"if {step['if']}" if step["if"] else str(step["kind"])


def describe_next(step: Row) -> str:
    """Return what follows a step."""
    ways = [f"{label} -> {entry}" for label, entry in step["branches"].items()]
    if step["next"]:
        ways.append(
            {"switch": "true -> ", "split": "join -> "}.get(step["kind"], "") + step["next"]
        )
    if step["otherwise"]:
        ways.append(f"false -> {step['otherwise']}")
    ways += [f"{event} -> {', '.join(to)}" for event, to in step["on_events"].items()]
    return "; ".join(ways) or "end"


def explain_steps(note: Note, steps: Iterable[Row]) -> None:
    """Note how the steps of a pipeline are resolved, and where their baggage comes from."""
    for step in steps:
        source = step["source"]
        note(f"{step['step']}: {describe_action(step)}; {describe_next(step)}; at {source}")
        for path, origin in step["baggage"].items():
            note(f"  baggage {path} from {origin}")


def explain_jobs(note: Note, nodes: Iterable[Row]) -> None:
    """Note for each job of a graph which step it is, what led to it, and what baggage it added."""
    for node in nodes:
        note(f"job {node['job_id']}: {node['plugin']}.{node['command']}, {_describe_origin(node)}")
        if node["plugin"] == SWITCH_PLUGIN and (verdict := _read_verdict(node)) is not None:
            note(f"  its condition is {str(verdict).lower()}")
        for path, value in (node.get("baggage_added") or {}).items():
            note(f"  baggage adds {path} = {' '.join(output.format_value(value).split())}")


def _describe_origin(node: Row) -> str:
    # Of a pruned job only its log is left, which has few of these keys.
    def say(text: str, key: str, otherwise: str = "") -> str:
        return otherwise if node.get(key) in (None, "") else text.format_map(node)

    step = say("step {step} of {pipeline}", "step", "not a step")
    place = say(", branch {branch}", "branch") + say(", join of {join_of}", "join_of")
    parent = say("after job {parent_job_id}", "parent_job_id", "a first job")
    event = say(", by event {source_event_id}", "source_event_id")
    return f"{step}{place}; {parent}{event}{say('; hop {hops}', 'hops')}"


def _read_verdict(node: Row) -> bool | None:
    response = node.get("result")
    result = response.get("result") if isinstance(response, Mapping) else None
    return result.get("matched") if isinstance(result, Mapping) else None
