"""What is read of the context, and whether a claim can have reached it."""

from __future__ import annotations

import pytest

from ductile.core.pipelines.compile import Compiled, compile_pipelines
from ductile.errors import Severity
from tests.core.pipelines.test_compile import IF, PLUGINS

S = ("pipelines", 0, "steps")
CLAIM = {"id": "claim", "uses": "a", "baggage": {"x.y": "payload.y"}}
SPLIT = {"id": "fan", "split": [CLAIM, {"uses": "b"}]}
READ = {"uses": "c", "with": {"word": "say {context.x.y}"}}


def told(*steps, others=(), **keys) -> list[tuple[tuple, str]]:
    first = {"name": "p", "on": "go", "steps": list(steps), **keys}
    result = compile_pipelines((first, *others), PLUGINS, instances=frozenset({"lab"}))
    assert isinstance(result, Compiled), [str(problem) for problem in result]
    assert all(warning.severity is Severity.WARNING for warning in result.warnings)
    return [(warning.path, warning.message) for warning in result.warnings]


def test_what_a_branch_claims_is_not_there_after_the_join():
    [(path, message)] = told(SPLIT, READ)
    assert path == (*S, 1, "with", "word")
    assert message == (
        "context.x.y is never there: only fan.0.claim claims it, and what a branch of fan claims "
        "ends with the branch"
    )


@pytest.mark.parametrize(
    ("step", "place"),
    [
        ({"uses": "c", "with": {"deep": [{"er": "{context.x}"}]}}, ("with", "deep")),
        ({"uses": "c", "baggage": {"z": "context.x.y.more"}}, ("baggage", "z")),
        ({"uses": "c", "baggage": {"x.y": "context.x.y"}}, ("baggage", "x.y")),
        ({"uses": "c", "if": {"path": "context.x.y", "op": "exists"}}, ("if",)),
        (
            {"uses": "c", "if": {"any": [{"not": {"path": "context.x", "op": "exists"}}]}},
            ("if",),
        ),
        (
            {"relay": {"to": "lab", "event": "e", "with": {"a": "{context.x.y}"}}},
            ("relay", "with", "a"),
        ),
        ({"relay": {"to": "lab", "event": "e", "with": "context.x"}}, ("relay", "with")),
        (
            {"relay": {"to": "lab", "event": "e", "dedupe_key": "context.x.y"}},
            ("relay", "dedupe_key"),
        ),
        (
            {"relay": {"to": "lab", "event": "e", "baggage": {"z": "context.x.y"}}},
            ("relay", "baggage", "z"),
        ),
    ],
)
def test_every_place_that_reads(step, place):
    assert [path for path, _ in told(SPLIT, step)] == [(*S, 1, *place)]


def test_it_is_not_there_any_later_either():
    assert [path for path, _ in told(SPLIT, {"uses": "b"}, {"steps": [READ]})] == [
        (*S, 2, "steps", 0, "with", "word")
    ]


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([{**CLAIM, "id": "early"}, SPLIT, READ], id="claimed before the split"),
        pytest.param([SPLIT, {**CLAIM, "id": "again"}, READ], id="claimed after it"),
        pytest.param(
            [SPLIT, {**READ, "baggage": {"x.y": "payload.branches"}}], id="claimed by the reader"
        ),
        pytest.param([{"id": "fan", "split": [{"steps": [CLAIM, READ]}]}], id="in its own branch"),
        pytest.param([SPLIT, {"uses": "c", "with": {"a": "{context.other}"}}], id="another path"),
        pytest.param([SPLIT, {"uses": "c", "with": {"a": "{payload.x.y}"}}], id="of the payload"),
        pytest.param([SPLIT, {"uses": "c", "with": {"a": "{context}"}}], id="all of the context"),
        pytest.param(
            [{"uses": "b", "baggage": CLAIM["baggage"], "if": IF}, SPLIT, READ],
            id="perhaps claimed before",
        ),
    ],
)
def test_what_may_be_there_is_not_warned_of(steps):
    assert told(*steps) == []


def test_the_inner_of_two_splits_ends_its_claims_too():
    outer = {"id": "out", "split": [{"steps": [SPLIT, READ]}, {"uses": "b"}]}
    [(path, message)] = told(outer, {"uses": "d"})
    assert path == (*S, 0, "split", 0, "steps", 1, "with", "word")
    assert "a branch of out.0.fan claims" in message
    [(path, message)] = told({"id": "out", "split": [{"steps": [SPLIT]}]}, READ)
    assert (path, "a branch of out claims" in message) == ((*S, 1, "with", "word"), True)


def test_what_an_event_leads_to_from_a_branch_belongs_to_the_branch():
    branch = {"uses": "b", "on_events": {"odd": ["claim"]}}
    steps = [{"id": "fan", "split": [branch, {"uses": "b"}]}, CLAIM, READ]
    assert [path for path, _ in told(*steps)] == [(*S, 2, "with", "word")]


def test_a_chain_that_comes_from_another_pipeline_brings_its_claims():
    entered = {"name": "other", "on": "x", "steps": [SPLIT, READ]}
    assert len(told({"uses": "b"}, others=[entered])) == 1
    here = {**CLAIM, "on_events": {"odd": ["other"]}}
    assert told(here, others=[entered]) == []


def test_steps_that_several_pipelines_call_are_told_of_once():
    shared = {"name": "shared", "on": "x", "steps": [SPLIT, READ]}
    [(path, _)] = told({"call": "shared"}, {"call": "shared"}, others=[shared])
    assert path == ("pipelines", 1, "steps", 1, "with", "word")


def test_a_loop_is_gone_through_once():
    steps = [
        {"id": "top", "uses": "a", "on_events": {"again": ["turn"]}},
        SPLIT,
        READ,
        {"id": "turn", "uses": "b", "on_events": {"again": ["turn"]}},
    ]
    assert [path for path, _ in told(*steps, max_depth=9)] == [(*S, 2, "with", "word")]
