"""What pipelines name in each other: duplicates, calls, targets, cycles, waits without an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ductile.core.pipelines.compiler.header import PipelineHeader
from ductile.core.pipelines.compiler.link import Authored
from ductile.core.pipelines.compiler.parse import Known, Step, StepKind, walk
from ductile.core.pipelines.pipeline import SYNCHRONOUS
from ductile.core.values.json_values import shorten
from ductile.core.values.suggest import nearest
from ductile.errors import Problem, errors_of


def find_duplicates(headers: Iterable[PipelineHeader]) -> Iterator[Problem]:
    seen: dict[str, PipelineHeader] = {}
    for header in headers:
        other = seen.get(header.name)
        # Two pipelines with one name are reported once, not again for each of their lists.
        if other is not None and not (header.from_pipeline and other.from_pipeline):
            message = "another pipeline has this name"
            at = header.at if header.from_pipeline else (*header.at, "name")
            yield Problem(message, at, found=shorten(header.name))
        if header.name:
            seen.setdefault(header.name, header)


def without_errors(
    pipelines: Mapping[str, Authored], problems: Iterable[Problem]
) -> dict[str, Authored]:
    """The pipelines without an error that call no pipeline with an error."""
    users: dict[str, list[str]] = {}
    for name, pipeline in pipelines.items():
        for step in walk(pipeline.steps):
            for used in (step.call, *(name for to in step.on_events.values() for name in to)):
                users.setdefault(used, []).append(name)
    places = {
        problem.path[:end]
        for problem in errors_of(problems)
        for end in range(1, len(problem.path) + 1)
    }
    open_ = [name for name, pipeline in pipelines.items() if pipeline.at in places]
    broken = set(open_)
    while open_:
        fresh = set(users.get(open_.pop(), ())) - broken
        broken |= fresh
        open_ += fresh
    return {name: pipeline for name, pipeline in pipelines.items() if name not in broken}


def check_references(
    pipeline: Authored, pipelines: Mapping[str, Authored], known: Known
) -> Iterator[Problem]:
    """Calls and targets that do not exist."""
    for step in walk(pipeline.steps):
        if step.kind is StepKind.CALL and step.call not in pipelines:
            close = nearest(step.call, pipelines)
            found = shorten(step.call)
            yield Problem("no such pipeline", (*step.at, "call"), found=found, nearest=close)
        for event, names in step.on_events.items():
            for name in names:
                if name in pipeline.ids or name in pipelines:
                    continue
                plugin, command = known.command(name)
                if command not in known.plugins.get(plugin, ()):
                    yield Problem(
                        "is not a step of this pipeline, a pipeline or a command of a plugin",
                        (*step.at, "on_events", event),
                        found=shorten(name),
                        nearest=nearest(name, {*pipeline.ids, *pipelines, *known.plugins}),
                    )


def find_call_cycles(pipelines: Mapping[str, Authored]) -> Iterator[Problem]:
    """One problem for each cycle of calls."""
    finished: set[str] = set()
    for start in pipelines:
        trail: dict[str, Iterator[Step]] = {}
        name: str | None = start if start not in finished else None
        while name is not None:
            calls = trail.setdefault(name, _calls(pipelines[name], pipelines))
            step = next(calls, None)
            if step is None:
                finished.add(name)
                del trail[name]
                name = next(reversed(trail), None)
            elif step.call in trail:
                names = list(trail)
                cycle = " -> ".join((*names[names.index(step.call) :], step.call))
                yield Problem(f"pipelines call each other in a cycle: {cycle}", (*step.at, "call"))
            elif step.call not in finished:
                name = step.call


def _calls(pipeline: Authored, pipelines: Mapping[str, Authored]) -> Iterator[Step]:
    return (
        step
        for step in walk(pipeline.steps)
        if step.kind is StepKind.CALL and step.call in pipelines
    )


def find_endless_waits(
    header: PipelineHeader, pipelines: Mapping[str, Authored]
) -> Iterator[Problem]:
    """Waits without an end in a synchronous pipeline, also in the pipelines that it calls."""
    if header.mode != SYNCHRONOUS:
        return
    open_, seen = [header.authored], {header.name}
    for pipeline in open_:
        for step in walk(pipeline.steps):
            if step.wait is not None and step.wait.is_endless:
                yield Problem(
                    f"the wait has no end, and pipeline {header.name} is synchronous: its caller "
                    "would never get an answer; set a timeout",
                    (*step.at, "wait"),
                )
            called = pipelines.get(step.call)
            if called is not None and step.call not in seen:
                seen.add(step.call)
                open_.append(called)
