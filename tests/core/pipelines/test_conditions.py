from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.pipelines.conditions import (
    OPERATORS,
    compile_condition,
    evaluate,
    explain,
    roots,
)
from ductile.core.values.json_values import MISSING, Failure, StepValues, are_equal, parse_ref
from ductile.errors import Problem
from tests.core.values.test_json_values import JSON

AT = ("pipelines", 0, "steps", 1, "if")


def judge(raw, payload=None, context=None, config=None):
    condition = compile_condition(raw, AT)
    assert not isinstance(condition, list), condition
    return evaluate(condition, StepValues(payload or {}, context or {}, config or {}))


def problems(raw) -> list[Problem]:
    found = compile_condition(raw, AT)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("op", "value", "found", "expected"),
    [
        ("eq", 1, 1.0, True),
        ("eq", 3, 3, True),
        ("eq", 1, True, False),
        ("eq", "1", 1, False),
        ("eq", "a", "A", False),
        ("eq", None, None, True),
        ("eq", [1, {"a": 2}], [1, {"a": 2.0}], True),
        ("neq", "a", "b", True),
        ("neq", 1, 1.0, False),
        ("neq", 1, True, True),
        ("in", [1, "x"], 1.0, True),
        ("in", [1, "x"], "X", False),
        ("in", [True], 1, False),
        ("gt", 1, 1.5, True),
        ("gt", 1, 1, False),
        ("gte", 1, 1.0, True),
        ("lt", 2, 1, True),
        ("lte", 2, 3, False),
        ("gt", 0, True, False),
        ("gt", 0, "5", False),
        ("lt", 0, None, False),
        ("contains", "ERR", "an error", True),
        ("contains", "x", ["x"], False),
        ("startswith", "Err", "ERROR", True),
        ("endswith", "OR", "error", True),
        ("endswith", "1", 1, False),
        ("regex", "v[0-9]+", "v12", True),
        ("regex", "v[0-9]+", "xv12", False),
        ("regex", "v", "V", False),
        ("regex", "(?i)v", "V", True),
        ("regex", "1", 1, False),
    ],
)
def test_each_operator_is_strict_about_types(op, value, found, expected):
    assert judge({"path": "payload.x", "op": op, "value": value}, {"x": found}) is expected


def test_a_config_that_was_frozen_means_the_same():
    raw = {"all": ({"path": "payload.x", "op": "eq", "value": ({"a": (1,)},)},)}
    assert judge(raw, {"x": [{"a": [1]}]}) is True
    assert judge({"path": "payload.x", "op": "in", "value": (1, 2)}, {"x": 2}) is True


def test_exists_is_about_the_path_and_not_about_the_value():
    assert judge({"path": "payload.x", "op": "exists"}, {"x": None}) is True
    assert judge({"path": "payload.x", "op": "exists"}, {}) is False
    assert judge({"path": "payload.x", "op": "exists", "value": False}, {}) is True


@pytest.mark.parametrize("op", [op for op in OPERATORS if op != "exists"])
def test_a_missing_path_is_compared_as_null_and_otherwise_false(op):
    value = {"in": [1]}.get(op, "a" if op in ("contains", "startswith", "endswith", "regex") else 1)
    assert judge({"path": "payload.x", "op": op, "value": value}) is (op == "neq")
    assert judge({"path": "payload.x", "op": "eq", "value": None}) is True


def test_all_any_and_not_combine():
    yes = {"path": "payload.x", "op": "eq", "value": 1}
    no = {"path": "payload.x", "op": "eq", "value": 2}
    assert judge({"all": [yes, yes]}, {"x": 1}) is True
    assert judge({"all": [yes, no]}, {"x": 1}) is False
    assert judge({"any": [no, yes]}, {"x": 1}) is True
    assert judge({"any": [no, {"not": yes}]}, {"x": 1}) is False


def test_context_and_config_can_be_read():
    raw = {
        "all": [
            {"path": "context.user", "op": "eq", "value": "matt"},
            {"path": "config.limit", "op": "gte", "value": 5},
        ]
    }
    assert judge(raw, {}, {"user": "matt"}, {"limit": 5}) is True
    condition = compile_condition(raw, AT)
    assert not isinstance(condition, list)
    assert roots(condition) == {"context", "config"}


def test_regex_that_gives_up_fails_the_condition_even_under_not():
    raw = {"not": {"path": "payload.x", "op": "regex", "value": "a*"}}
    assert isinstance(judge(raw, {"x": "a" * (1024 * 1024 + 1)}), Failure)


def test_condition_that_is_not_evaluated_does_not_fail():
    slow = {"path": "payload.x", "op": "regex", "value": "a*"}
    raw = {"any": [{"path": "payload.x", "op": "exists"}, slow]}
    assert judge(raw, {"x": "a" * (1024 * 1024 + 1)}) is True


@pytest.mark.parametrize(
    ("raw", "path", "part"),
    [
        ("payload.x", AT, "must be a mapping"),
        ({}, AT, "must be one thing"),
        ({"path": "payload.x", "op": "eq", "value": 1, "all": []}, AT, "must be one thing"),
        ({"all": [], "any": []}, AT, "must be one thing"),
        ({"all": []}, (*AT, "all"), "at least one"),
        ({"any": {"path": "payload.x"}}, (*AT, "any"), "at least one"),
        ({"path": "state.x", "op": "exists"}, (*AT, "path"), "payload, context or config"),
        ({"path": "payload..x", "op": "exists"}, (*AT, "path"), "empty part"),
        ({"op": "exists"}, (*AT, "path"), "must be text"),
        ({"path": "payload.x", "op": "equals", "value": 1}, (*AT, "op"), "unknown operator"),
        ({"path": "payload.x"}, (*AT, "op"), "unknown operator"),
        ({"path": "payload.x", "op": "eq"}, AT, "needs a value"),
        ({"path": "payload.x", "op": "in", "value": 1}, (*AT, "value"), "needs a list"),
        ({"path": "payload.x", "op": "gt", "value": "1"}, (*AT, "value"), "compares numbers"),
        ({"path": "payload.x", "op": "gt", "value": True}, (*AT, "value"), "compares numbers"),
        ({"path": "payload.x", "op": "contains", "value": 1}, (*AT, "value"), "compares text"),
        ({"path": "payload.x", "op": "regex", "value": "(?=a)"}, (*AT, "value"), "look-ahead"),
        ({"path": "payload.x", "op": "exists", "value": 1}, (*AT, "value"), "accepts only"),
        ({"path": "payload.x", "op": "eq", "val": 1, "value": 1}, (*AT, "val"), "unknown key"),
        ({"all": [{"not": {"op": "eq"}}]}, (*AT, "all", 0, "not"), "needs a value"),
    ],
)
def test_a_bad_condition_is_refused_where_it_is_bad(raw, path, part):
    assert [p for p in problems(raw) if p.path == path and part in p.message]


def test_a_misspelt_operator_gets_a_suggestion():
    (problem,) = problems({"path": "payload.x", "op": "startwith", "value": "a"})
    assert problem.nearest == "startswith"


def test_three_levels_are_allowed_and_four_are_not():
    test = {"path": "payload.x", "op": "exists"}
    assert judge({"all": [{"not": test}]}) is True
    (problem,) = problems({"all": [{"any": [{"not": test}]}]})
    assert problem.path == (*AT, "all", 0, "any", 0, "not")
    assert "deeper than 3" in problem.message


def test_twenty_nodes_are_allowed_and_twenty_one_are_not():
    test = {"path": "payload.x", "op": "exists"}
    assert judge({"any": [test] * 19}) is False
    (problem,) = problems({"any": [test] * 20})
    assert "more than 20" in problem.message


def test_every_problem_is_reported_at_once():
    raw = {"all": [{"path": "x", "op": "nope"}, {"path": "payload.x", "op": "gt", "value": "a"}]}
    assert len(problems(raw)) == 3


def test_a_very_deep_condition_is_refused_without_descending():
    raw: object = {"path": "payload.x", "op": "exists"}
    for _ in range(10_000):
        raw = {"not": raw}
    assert len(problems(raw)) == 1


VALUES = JSON | st.sampled_from(["a", "Ab", 1, 2.5, True, None])
PATHS = st.sampled_from(["payload.a", "payload.b", "context.a", "config.c.d", "payload"])


def comparing(ops: list[str], values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.builds(
        lambda path, op, value: {"path": path, "op": op, "value": value},
        PATHS,
        st.sampled_from(ops),
        values,
    )


TESTS = st.one_of(
    st.builds(lambda path: {"path": path, "op": "exists"}, PATHS),
    comparing(["eq", "neq"], VALUES),
    comparing(["in"], st.lists(VALUES, max_size=3)),
    comparing(["gt", "gte", "lt", "lte"], st.integers(-3, 3) | st.floats(-3, 3)),
    comparing(["contains", "startswith", "endswith"], st.text("aAb", max_size=2)),
)
PAIRS = st.lists(TESTS | st.builds(lambda t: {"not": t}, TESTS), min_size=1, max_size=4)
CONDITIONS = TESTS | st.builds(
    lambda op, parts: {op: parts}, st.sampled_from(["all", "any"]), PAIRS
)


def naive(raw, scope) -> bool:
    if "all" in raw:
        return all(naive(part, scope) for part in raw["all"])
    if "any" in raw:
        return any(naive(part, scope) for part in raw["any"])
    if "not" in raw:
        return not naive(raw["not"], scope)
    found = parse_ref(raw["path"]).read(scope)  # type: ignore[union-attr]
    op, value = raw["op"], raw.get("value")
    if op == "exists":
        return found is not MISSING
    found = None if found is MISSING else found
    numbers = type(found) in (int, float)
    texts = type(found) is str
    return {
        "eq": lambda: are_equal(found, value),
        "neq": lambda: not are_equal(found, value),
        "in": lambda: any(are_equal(found, item) for item in value),
        "gt": lambda: numbers and found > value,
        "gte": lambda: numbers and found >= value,
        "lt": lambda: numbers and found < value,
        "lte": lambda: numbers and found <= value,
        "contains": lambda: texts and value.lower() in found.lower(),
        "startswith": lambda: texts and found.lower().startswith(value.lower()),
        "endswith": lambda: texts and found.lower().endswith(value.lower()),
    }[op]()


@settings(max_examples=300)
@given(
    CONDITIONS,
    st.dictionaries(st.sampled_from("ab"), VALUES),
    st.dictionaries(st.sampled_from("a"), VALUES),
    st.dictionaries(st.sampled_from("c"), st.dictionaries(st.just("d"), VALUES)),
)
def test_conditions_agree_with_a_naive_reading(raw, payload, context, config):
    assert judge(raw, payload, context, config) is naive(raw, StepValues(payload, context, config))


@given(JSON)
def test_anything_compiles_or_is_refused_with_problems(raw):
    found = compile_condition(raw, AT)
    if isinstance(found, list):
        assert found
        assert all(problem.path[: len(AT)] == AT for problem in found)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ({"path": "payload.x", "op": "eq", "value": "a"}, 'payload.x eq "a"'),
        ({"path": "payload.x", "op": "exists"}, "payload.x exists"),
        ({"path": "payload.x", "op": "exists", "value": False}, "payload.x is absent"),
        ({"path": "payload.x", "op": "regex", "value": "a+"}, 'payload.x regex "a+"'),
        (
            {
                "all": [
                    {"path": "payload.x", "op": "exists"},
                    {"any": [{"path": "config.y", "op": "lt", "value": 3}]},
                ]
            },
            "(payload.x exists and (config.y lt 3))",
        ),
        ({"not": {"path": "context.x", "op": "in", "value": [1]}}, "not context.x in [1]"),
    ],
)
def test_a_condition_can_be_read_aloud(raw, text):
    assert str(compile_condition(raw, AT)) == text


TOTAL = {"path": "payload.total", "op": "gt", "value": 1000}


@pytest.mark.parametrize(
    ("raw", "payload", "text"),
    [
        (TOTAL, {"total": "1250.00"}, 'payload.total: "1250.00" is text, 1000 is a number'),
        (TOTAL, {"total": 12}, "payload.total is 12, a number"),
        (TOTAL, {}, "payload.total does not exist"),
        ({"not": TOTAL}, {"total": 2000}, "payload.total is 2000, a number"),
        (
            {"path": "payload.kind", "op": "eq", "value": True},
            {"kind": "true"},
            'payload.kind: "true" is text, true is a boolean',
        ),
        (
            {"path": "payload.kind", "op": "regex", "value": "a+"},
            {"kind": ["a"]},
            'payload.kind: ["a"] is a list, "a+" is text',
        ),
        (
            {"all": [{"path": "payload.x", "op": "exists"}, TOTAL]},
            {"x": None, "total": 1},
            "payload.total is 1, a number",
        ),
        (
            {"any": [{"path": "payload.x", "op": "exists"}, TOTAL]},
            {"total": 1},
            "payload.x does not exist; payload.total is 1, a number",
        ),
        (
            {"path": "payload.api_token", "op": "eq", "value": 1},
            {"api_token": "s3cret-value"},
            "payload.api_token: [REDACTED] is text, 1 is a number",
        ),
    ],
)
def test_a_verdict_is_explained_by_both_sides_and_their_types(raw, payload, text):
    condition = compile_condition(raw, AT)
    assert not isinstance(condition, list)
    assert explain(condition, StepValues(payload)) == text
