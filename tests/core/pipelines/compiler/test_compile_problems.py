from __future__ import annotations

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.compiler.compile import compile_pipelines
from ductile.core.pipelines.pipeline import Compiled, PartlyCompiled
from ductile.errors import Problem, Severity
from tests.core.pipelines.compiler.test_compile import IF, PLUGINS, compiled, one
from tests.core.values.test_json_values import JSON


def problems(*pipelines, **options) -> list[Problem]:
    result = compile_pipelines(pipelines, PLUGINS, **options)
    assert isinstance(result, PartlyCompiled)
    return list(result.problems)


def refused(path, part, *pipelines, **options):
    found = problems(*pipelines, **options)
    assert [p for p in found if p.path == path and part in str(p)], [str(p) for p in found]


def pipeline(*steps, name="p", **keys):
    return {"name": name, "on": "go", "steps": list(steps), **keys}


P = ("pipelines", 0)
S = (*P, "steps", 0)
A = {"uses": "a"}


@pytest.mark.parametrize(
    ("raw", "path", "part"),
    [
        ("text", P, "must be a mapping"),
        ({"on": "x", "steps": [A]}, (*P, "name"), "needs a name"),
        (pipeline(A, name=3), (*P, "name"), "must be text"),
        (pipeline(A, on=None), P, "either on or on-hook"),
        (pipeline(A, **{"on-hook": "job.failed"}), P, "either on or on-hook"),
        (pipeline(A, on=None, **{"on-hook": "job.faild"}), (*P, "on-hook"), "'job.failed'?"),
        (pipeline(A, from_plugin="aa"), (*P, "from_plugin"), "did you mean 'a'?"),
        (pipeline(A, execution_mode="sync"), (*P, "execution_mode"), "async, synchronous"),
        (pipeline(A, name="a/b"), (*P, "name"), "cannot be part of a URL"),
        (pipeline(A, name=".."), (*P, "name"), "cannot be part of a URL"),
        (pipeline(A, max_depth=-1), (*P, "max_depth"), "0 means no limit"),
        (pipeline(A, max_depth=True), (*P, "max_depth"), "0 means no limit"),
        (pipeline(A, **{"if": {"op": "eq"}}), (*P, "if"), "needs a value"),
        (pipeline(), (*P, "steps"), "at least one step"),
        (pipeline("x"), S, "must be a mapping"),
        (pipeline({}), S, "one kind"),
        (pipeline({"uses": "a", "call": "p"}), S, "one kind"),
        (pipeline({"uses": "nope"}), (*S, "uses"), "unknown plugin"),
        (pipeline({"uses": "nope.poll"}), (*S, "uses"), "unknown plugin"),
        (pipeline({"uses": "a.pol"}), (*S, "uses"), "did you mean 'poll'?"),
        (pipeline({"uses": "silent"}), (*S, "uses"), "does not have this command"),
        (pipeline({"uses": 3}), (*S, "uses"), "a plugin is needed"),
        (pipeline({"call": "nope"}), (*S, "call"), "no such pipeline"),
        (pipeline({"call": 3}), (*S, "call"), "name of a pipeline"),
        (pipeline({"uses": "a", "id": "a/b"}), (*S, "id"), "without / and @"),
        (pipeline({"uses": "a", "id": 7}), (*S, "id"), "without / and @"),
        (pipeline({"id": "x", **A}, {"id": "x", **A}), (*P, "steps", 1, "id"), "has this id"),
        (
            pipeline({"id": "x", **A}, {"split": [{"id": "x", **A}]}),
            (*P, "steps", 1, "split", 0, "id"),
            "has this id",
        ),
        (pipeline({"split": [A], "with": {"x": 1}}), (*S, "with"), "`uses` step"),
        (pipeline({"call": "p", "baggage": {"x": "payload.x"}}), (*S, "baggage"), "`uses`"),
        (pipeline({"split": [A], "on_events": {"x": ["a"]}}), (*S, "on_events"), "emits no"),
        (pipeline({**A, "join": "always"}), (*S, "join"), "on a split"),
        (pipeline({"split": [A], "join": "never"}), (*S, "join"), "always"),
        (pipeline({**A, "with": ["x"]}), (*S, "with"), "must be a mapping"),
        (pipeline({**A, "with": {"x": "{payload.}"}}), (*S, "with", "x"), "empty part"),
        (
            pipeline({**A, "baggage": {"ductile": "payload.x"}}),
            (*S, "baggage", "ductile"),
            "is reserved",
        ),
        (pipeline({**A, "if": {"path": "x", "op": "exists"}}), (*S, "if", "path"), "start with"),
        (pipeline({**A, "on_events": {"e": ["notfy"]}}), (*S, "on_events", "e"), "'notify'?"),
        (pipeline({**A, "on_events": {"e": ["silent"]}}), (*S, "on_events", "e"), "of a plugin"),
        (pipeline({**A, "on_events": {"e": [3]}}), (*S, "on_events", "e"), "list of steps"),
        (pipeline({**A, "on_events": ["e"]}), (*S, "on_events"), "must be a mapping"),
        (pipeline({"relay": {"event": "x"}}), (*S, "relay", "to"), "requires `to:`"),
        (pipeline({"relay": {"to": "lab"}}), (*S, "relay", "event"), "requires `event:`"),
        (pipeline({"relay": "lab"}), (*S, "relay"), "must be a mapping"),
        (
            pipeline({"relay": {"to": "l", "event": "x", "evnt": 1}}),
            (*S, "relay", "evnt"),
            "'event'?",
        ),
        (
            pipeline({"relay": {"to": "l", "event": "x"}, "with": {"a": 1}}),
            (*S, "with"),
            "relay: with:",
        ),
        (
            pipeline({"id": "x", **A, "on_events": {"e": ["x"]}}),
            (*P, "steps"),
            "there is no first step",
        ),
        (pipeline(*[A] * 21), P, "21 hops"),
        (pipeline(A, on_failure=[]), (*P, "on_failure"), "at least one step"),
        (pipeline(A, always=[{"uses": "nope"}]), (*P, "always", 0, "uses"), "unknown plugin"),
        (pipeline(A, on_success=[{"call": "x"}]), (*P, "on_success", 0, "call"), "no such"),
        (pipeline(A, always=[A] * 21), (*P, "always"), "21 hops, more than 20; shorten it"),
        (
            pipeline(A, always=[A, {"id": "x", **A, "on_events": {"e": ["x"]}}]),
            (*P, "always", 1),
            "never reached",
        ),
        (
            pipeline(A, always=[{"id": "x", **A}, {"id": "x", **A}]),
            (*P, "always", 1, "id"),
            "has this id",
        ),
        (pipeline(A, name="p" * 250, always=[A]), (*P, "always"), "name is too long"),
    ],
)  # fmt: skip
def test_a_bad_pipeline_is_refused_where_it_is_bad(raw, path, part):
    refused(path, part, raw)


def test_unknown_instance_is_refused_where_instances_are_known():
    raw = pipeline({"relay": {"to": "lap", "event": "x"}})
    path = (*S, "relay", "to")
    refused(path, "did you mean 'lab'?", raw, instances=frozenset({"lab"}))


def test_two_pipelines_of_one_name_are_refused():
    refused(("pipelines", 1, "name"), "another pipeline", pipeline(A), pipeline(A))
    refused(("pipelines", 1, "name"), "another pipeline", pipeline(A, always=[A]), pipeline(A))
    twice = pipeline(A, always=[A]), pipeline(A, always=[A])
    refused(("pipelines", 1, "name"), "another pipeline", *twice)


def test_a_pipeline_with_the_name_of_a_handler_is_refused():
    named, handled = pipeline(A, name="p.always"), pipeline(A, always=[A])
    refused(("pipelines", 1, "always"), "another pipeline", named, handled)
    refused(("pipelines", 1, "name"), "another pipeline", handled, named)


def test_a_handler_that_loops_is_refused():
    loop = [
        {"id": "x", **A, "on_events": {"e": ["y"]}},
        {"id": "y", **A, "on_events": {"e": ["y"]}},
    ]
    refused((*P, "on_failure"), "start them as another pipeline", pipeline(A, on_failure=loop))


def test_pipelines_that_call_each_other_are_refused_with_the_circle():
    refused(
        ("pipelines", 2, "steps", 0, "call"),
        "a -> b -> c -> a",
        pipeline({"call": "b"}, name="a"),
        pipeline({"steps": [{"call": "c"}]}, name="b"),
        pipeline({"call": "a"}, name="c"),
    )
    refused((*S, "call"), "p -> p", pipeline({"call": "p"}))


def test_steps_that_only_name_each_other_are_never_reached():
    raw = pipeline(
        A,
        {"id": "x", **A, "on_events": {"e": ["y"]}},
        {"id": "y", **A, "on_events": {"e": ["x"]}},
    )
    refused((*P, "steps", 1), "never reached", raw)
    refused((*P, "steps", 2), "never reached", raw)


def test_a_loop_by_on_events_needs_a_depth():
    loop = {"id": "again", **A, "on_events": {"retry": ["again"]}}
    first = {**A, "on_events": {"retry": ["again"]}}
    refused(P, "can loop", pipeline(first, loop))
    assert compiled(pipeline(first, loop, max_depth=9)).pipelines["p"].longest is None
    refused(P, "can loop", pipeline({**A, "on_events": {"retry": ["p"]}}))


def test_longest_path_counts_switches_targets_and_other_pipelines():
    other = pipeline(A, A, A, name="other")
    mine = pipeline({**A, "if": IF, "on_events": {"e": ["other"]}}, A)
    assert compiled(other, mine).pipelines["p"].longest == 5


def test_on_events_that_can_never_happen_are_refused():
    group = {"steps": [{"split": [A]}], "on_events": {"e": ["notify"]}}
    refused((*S, "on_events"), "never reached", pipeline(group))


def test_a_join_is_next_to_its_branches_and_not_behind_them():
    assert one({"split": [{"steps": [A, A, A]}]}, A).longest == 1 + 3
    assert one({"split": [A]}, A, A).longest == 1 + 2


def test_every_split_of_a_path_is_a_hop():
    splits = [{"split": [A]} for _ in range(20)]
    refused(P, "21 hops", pipeline(*splits))
    refused(P, "21 hops", pipeline({"split": [{"split": [A] * 2}, A]}, *splits[:19]))
    assert compiled(pipeline(*splits[:19])).pipelines["p"].max_depth == 20


def test_max_depth_below_the_longest_path_is_a_warning():
    splits = [{"split": [A]} for _ in range(30)]
    (warning,) = compiled(pipeline(*splits, max_depth=5)).warnings
    assert warning.path == (*P, "max_depth")
    assert "31 hops" in warning.message
    assert compiled(pipeline(A, A, max_depth=2)).warnings == ()


def test_the_hops_allowed_follow_the_services():
    raw = pipeline(*[A] * 25)
    refused(P, "25 hops", raw)
    assert compiled(raw, max_hops=30)
    refused(P, "more than 3", pipeline(*[A] * 4), max_hops=3)


def test_hook_cannot_read_context_and_a_pipelines_if_sees_no_config():
    condition = {"path": "context.x", "op": "exists"}
    hook = {"name": "p", "on-hook": "job.failed", "if": condition, "steps": [A]}
    refused((*P, "if"), "no context", hook)
    (warning,) = compiled(pipeline(A, **{"if": {"path": "config.x", "op": "exists"}})).warnings
    assert (warning.severity, warning.path) == (Severity.WARNING, (*P, "if"))


def test_sources_other_than_plugins_can_be_named():
    refused((*P, "from_plugin"), "unknown", pipeline(A, from_plugin="peer"))
    assert compiled(pipeline(A, from_plugin="peer"), sources=frozenset({"peer"}))


def test_all_problems_of_all_pipelines_are_reported_at_once_and_each_once():
    found = problems(
        pipeline({"uses": "nope"}, name="bad"),
        pipeline({"call": "bad"}, name="user"),
        pipeline(*[A] * 21, name="long"),
        pipeline({"id": "x", **A, "on_events": {"e": ["x"]}}, name="lost"),
        pipeline({"call": "lost"}, name="lostuser"),
        pipeline({"call": "gone"}, name="dangling"),
    )
    assert [problem.path for problem in found] == [
        ("pipelines", 0, "steps", 0, "uses"),
        ("pipelines", 5, "steps", 0, "call"),
        ("pipelines", 3, "steps"),
        ("pipelines", 4, "steps"),
        ("pipelines", 2),
    ]


def test_two_steps_that_come_to_the_same_path_are_refused():
    raw = pipeline({"id": "g.step_1", **A}, {"id": "g", "steps": [A]})
    refused(S, "'g.step_1'", raw)


def test_calls_that_double_at_each_level_are_refused():
    """Two to the power of 24 steps: to make them all would never end."""
    levels = [pipeline(A, name="l0")]
    for level in range(1, 25):
        call = {"call": f"l{level - 1}"}
        levels.append(pipeline({"split": [call, call]}, name=f"l{level}", max_depth=0))
    found = problems(*levels)
    assert any("more than 10000 steps" in problem.message for problem in found)


def test_deep_nesting_and_long_chains_of_calls_are_refused_not_a_crash():
    step: dict[str, object] = dict(A)
    for _ in range(200):
        step = {"steps": [step]}
    assert any("nested deeper" in problem.message for problem in problems(pipeline(step)))
    calls = [pipeline({"call": f"c{n + 1}"}, name=f"c{n}", max_depth=0) for n in range(500)]
    calls.append(pipeline(A, name="c500"))
    assert any("nested deeper" in problem.message for problem in problems(*calls))


def test_pipeline_of_a_thousand_steps_compiles_where_its_depth_is_set():
    assert one(*[A] * 1000, max_depth=0).longest == 1000


def test_compiling_cost_is_linear_in_the_number_of_pipelines():
    def calls(count: int) -> int:
        """How many functions are called to compile so many pipelines."""
        many = [pipeline(A, A, name=f"p{n}", on=f"event.{n}") for n in range(count)]
        made = 0

        def profile(_frame: object, event: str, _argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(profile)
        try:
            assert len(compiled(*many).pipelines) == count
        finally:
            sys.setprofile(None)
        return made

    once = calls(100)
    assert calls(1000) <= 10 * once


@settings(max_examples=150, deadline=None)
@given(st.lists(st.fixed_dictionaries({}, optional={
    "name": st.sampled_from(["p", "q"]) | JSON,
    "on": st.just("x") | JSON,
    "on-hook": st.just("job.failed") | JSON,
    "if": JSON,
    "max_depth": JSON,
    "steps": st.lists(st.fixed_dictionaries({}, optional={
        "id": st.sampled_from("xyz") | JSON,
        "uses": st.sampled_from("ab") | JSON,
        "call": st.sampled_from("pq") | JSON,
        "split": st.lists(st.fixed_dictionaries({"uses": st.just("a")}), max_size=2) | JSON,
        "on_events": st.dictionaries(st.just("e"), st.lists(st.sampled_from("xypqab"))) | JSON,
        "with": JSON,
        "baggage": JSON,
        "relay": JSON,
    }), max_size=3) | JSON,
}), max_size=3))  # fmt: skip
def test_anything_compiles_or_is_refused_with_paths_into_the_config(raw):
    result = compile_pipelines(raw, PLUGINS)
    if isinstance(result, PartlyCompiled):
        assert any(problem.severity is Severity.ERROR for problem in result.problems)
        assert all(problem.path[0] == "pipelines" for problem in result.problems)


def test_a_path_is_bounded_with_all_that_is_around_it():
    inner = {"id": "i" * 500, "uses": "a"}
    around = {"id": "o" * 520, "steps": [inner]}
    assert compiled(pipeline(around))
    refused(
        (*S, "steps", 0), "1025 bytes; allowed: at most 1024", pipeline({**around, "id": "o" * 524})
    )


@pytest.mark.parametrize(
    ("step", "key"),
    [
        ({"uses": "echo", "with": {"d": "{payloda.x}"}}, ("with", "d")),
        ({"relay": {"to": "lab", "event": "e", "with": "{payloda.x}"}}, ("relay", "with")),
        (
            {"relay": {"to": "lab", "event": "e", "dedupe_key": "{payloda.x}"}},
            ("relay", "dedupe_key"),
        ),
    ],
)
def test_a_misspelt_reference_is_a_warning(step, key):
    raw = [{"name": "p", "on": "go", "steps": [step]}]
    result = compile_pipelines(raw, {"echo": frozenset({"handle"})})
    assert isinstance(result, Compiled)
    [warning] = result.warnings
    assert warning.path == ("pipelines", 0, "steps", 0, *key)
    assert warning.nearest == "payload"
