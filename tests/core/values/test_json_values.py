from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.values.json_values import (
    MISSING,
    Failure,
    Ref,
    StepValues,
    are_equal,
    parse_ref,
    shorten,
)

SCALARS = st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-5, 5) | st.text(max_size=3)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("payload", {"a": {"b": [10, {"c": None}]}, "1": "digit"}),
        ("payload.a.b.0", 10),
        ("payload.a.b.1.c", None),
        ("payload.1", "digit"),
        (" payload . a.b.0 ", 10),
        ("context.user", "matt"),
        ("config.url", "http://x"),
    ],
)
def test_path_reads_objects_by_key_and_lists_by_index(path, expected):
    scope = StepValues(
        {"a": {"b": [10, {"c": None}]}, "1": "digit"}, {"user": "matt"}, {"url": "http://x"}
    )
    ref = parse_ref(path)
    assert isinstance(ref, Ref)
    assert ref.read(scope) == expected


@pytest.mark.parametrize(
    "path",
    ["payload.x", "payload.a.b.2", "payload.a.b.-1", "payload.a.b.c", "payload.a.b.0.x",
     "payload.a.b.99999999999999999999", "payload.a.b.²", "context.x"],
)  # fmt: skip
def test_path_that_does_not_exist_is_missing(path):
    ref = parse_ref(path)
    assert isinstance(ref, Ref)
    assert ref.read(StepValues({"a": {"b": [1, 2]}})) is MISSING


@pytest.mark.parametrize("path", ["", "x", "payloads.x", "payload.", "payload..x", ".x", 3, None])
def test_invalid_path_is_rejected_with_a_reason(path):
    assert isinstance(parse_ref(path), Failure)


def test_only_the_given_roots_are_allowed():
    assert isinstance(parse_ref("config.x", ("payload", "context")), Failure)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        ("1", 1, False),
        (None, 0, False),
        (None, None, True),
        ([1, {"a": 2}], [1.0, {"a": 2.0}], True),
        ([True], [1], False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({}, [], False),
        (2**53 + 1, float(2**53), False),
    ],
)
def test_equality_compares_types_and_numeric_values(one, other, expected):
    assert are_equal(one, other) is expected
    assert are_equal(other, one) is expected


@given(JSON)
def test_value_equals_itself_after_a_json_round_trip(value):
    assert are_equal(value, json.loads(json.dumps(value)))


@given(JSON, JSON)
def test_equality_agrees_with_json_texts_whose_numbers_are_floats(one, other):
    def canonical(value):
        if isinstance(value, bool) or not isinstance(value, int | float | list | dict):
            return (type(value).__name__, value)
        if isinstance(value, list):
            return ("list", tuple(map(canonical, value)))
        if isinstance(value, dict):
            return ("dict", tuple(sorted((k, canonical(v)) for k, v in value.items())))
        return ("number", float(value))

    assert are_equal(one, other) == (canonical(one) == canonical(other))


def test_shorten_is_limited_and_never_fails():
    assert shorten({"a": 1}) == '{"a":1}'
    assert len(shorten("x" * 1000)) == 60
    assert shorten({1, 2}) == "{1, 2}"
