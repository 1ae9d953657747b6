"""`wait:` of a step: what is accepted, what is refused, and where the problem is."""

from __future__ import annotations

from typing import Any

import pytest

from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.diagram import mermaid, tree
from ductile.core.pipelines.graph import WAIT_PLUGIN, NodeKind
from ductile.core.pipelines.pipeline import Compiled, PartlyCompiled
from ductile.core.waits.parse import OnTimeout, WaitKind, WaitStep, read_wait
from ductile.errors import Problem

PLUGINS = {"a": frozenset({"handle"})}


def parse(raw: Any) -> WaitStep:
    problems: list[Problem] = []
    wait = read_wait(raw, ("wait",), problems)
    assert problems == []
    assert wait is not None
    return wait


def problems_of(raw: Any) -> list[str]:
    problems: list[Problem] = []
    assert read_wait(raw, ("wait",), problems) is None
    return [str(problem) for problem in problems]


def compiled(wait: Any, *more: dict[str, Any], **header: Any) -> Compiled | PartlyCompiled:
    pipeline = {"name": "p", "on": "go", "steps": [{"id": "hold", "wait": wait}], **header}
    return compile_pipelines([pipeline, *more], PLUGINS)


def test_kinds_of_waits() -> None:
    assert parse(600.0) == WaitStep(WaitKind.FOR, seconds=600.0)
    assert parse({"for": 5}).seconds == 5.0
    assert parse({"until": "2027-01-31T09:00:00Z"}).kind is WaitKind.UNTIL
    approval = parse({"approval": "Pay?", "timeout": 60, "on_timeout": "skip"})
    assert (approval.timeout, approval.on_timeout) == (60.0, OnTimeout.SKIP)
    assert parse({"event": "paid"}).on_timeout is OnTimeout.FAIL


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ([], "wait: wait must be a duration or a mapping"),
        ({}, "wait: a wait must be of one kind"),
        ({"approval": "x", "event": "y"}, "wait: a wait must be of one kind"),
        ({"approval": {}}, "wait.approval: an approval requires a title"),
        ({"approval": {"title": "x", "titel": "y"}}, "wait.approval.titel: an unknown key"),
        ({"event": ""}, "wait.event: must be the type of an event"),
        ({"event": "x" * 2000}, "wait.event: the event type is too long"),
        ({"event": "x", "if": {"path": "payload.x"}}, "wait.if.op: an unknown operator"),
        (
            {"event": "x", "if": {"path": "config.x", "op": "exists"}},
            "wait.if: the `if` of a wait cannot read config.*",
        ),
        ({"approval": "x", "if": {}}, "wait.if: if belongs on a wait for an event"),
        ({"until": "soon"}, "wait.until: must be a time"),
        ({"until": 7}, "wait.until: must be a time"),
        ({"for": -1}, "wait.for: must be a duration"),
        ({"for": 1, "timeout": 2}, "wait.timeout: timeout has no effect"),
        ({"approval": "x", "on_timeout": "fail"}, "wait.on_timeout: on_timeout requires a timeout"),
        (
            {"approval": "x", "timeout": 1, "on_timeout": "reject"},
            "wait.on_timeout: no such action",
        ),
        ({"event": "x", "timout": 1}, "wait.timout: an unknown key"),
    ],
)
def test_invalid_waits_are_refused(raw: Any, problem: str) -> None:
    assert problems_of(raw)[0].startswith(problem)


@pytest.mark.parametrize("wait", [{"approval": "Pay?"}, {"event": "paid"}])
def test_wait_without_an_end_is_refused_in_a_synchronous_pipeline(wait: Any) -> None:
    found = compiled(wait, execution_mode="synchronous")
    assert isinstance(found, PartlyCompiled)
    [problem] = found.problems
    assert problem.path == ("pipelines", 0, "steps", 0, "wait")
    assert "the wait has no end, and pipeline p is synchronous" in problem.message
    assert isinstance(compiled({**wait, "timeout": 5}, execution_mode="synchronous"), Compiled)
    assert isinstance(compiled(wait), Compiled)


def test_wait_without_an_end_is_refused_in_a_called_pipeline() -> None:
    caller = {"name": "q", "on": "x", "execution_mode": "synchronous", "steps": [{"call": "p"}]}
    found = compiled({"approval": "Pay?"}, caller)
    assert isinstance(found, PartlyCompiled)
    assert [problem.path for problem in found.problems] == [("pipelines", 0, "steps", 0, "wait")]


def test_step_is_of_one_kind() -> None:
    step = {"uses": "a", "wait": 5.0}
    found = compile_pipelines([{"name": "p", "on": "go", "steps": [step]}], PLUGINS)
    assert isinstance(found, PartlyCompiled)
    assert found.problems[0].message == "a step must be of one kind"
    with_payload = {"wait": 5.0, "with": {"a": 1}}
    found = compile_pipelines([{"name": "p", "on": "go", "steps": [with_payload]}], PLUGINS)
    assert isinstance(found, PartlyCompiled)
    assert "with belongs on a `uses` step, not on `wait`" in found.problems[0].message


def test_compiled_node_and_diagram() -> None:
    found = compiled({"event": "paid", "timeout": 60.0, "on_timeout": "continue"})
    assert isinstance(found, Compiled)
    pipeline = found.pipelines["p"]
    node = pipeline.nodes["hold"]
    assert (node.kind, node.plugin) == (NodeKind.WAIT, WAIT_PLUGIN)
    label = "hold: wait event paid, at most 1m, then continue"
    assert label in tree(pipeline)
    assert f'(["{label}"])' in mermaid(pipeline)
