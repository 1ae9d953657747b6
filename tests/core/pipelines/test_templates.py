from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.pipelines.templates import Literal, compile_template, find_mistakes, render
from ductile.core.values.json_values import Failure, StepValues
from ductile.errors import Problem, Severity
from tests.core.values.test_json_values import JSON

AT = ("pipelines", 0, "steps", 0, "with")
PAYLOAD = {"n": 3, "f": 1.0, "text": "hi", "yes": True, "no": None, "o": {"k": [1, "é"]}}
SCOPE = StepValues(PAYLOAD, {"user": "matt"}, {"url": "http://x"})


def fill(raw, scope=SCOPE, **options):
    template = compile_template(raw, AT, **options)
    assert not isinstance(template, list), template
    return render(template, scope)


def problems(raw) -> list[Problem]:
    found = compile_template(raw, AT)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("{payload.n}", 3),
        ("{payload.yes}", True),
        ("{payload.no}", None),
        ("{payload.o}", {"k": [1, "é"]}),
        ("{payload.o.k.1}", "é"),
        ("{ payload.n }", 3),
        ("{payload}", PAYLOAD),
        ("{context.user}", "matt"),
        ("{config.url}", "http://x"),
    ],
)
def test_a_reference_alone_keeps_its_type(raw, expected):
    assert fill(raw) == expected
    assert type(fill(raw)) is type(expected)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("n is {payload.n}", "n is 3"),
        ("{payload.text} {context.user}", "hi matt"),
        ("{payload.yes}/{payload.no}/{payload.f}", "true/null/1.0"),
        ("o: {payload.o}", 'o: {"k":[1,"é"]}'),
        (" {payload.n}", " 3"),
        ("{payload.n}{payload.n}", "33"),
    ],
)
def test_a_reference_inside_text_becomes_text(raw, expected):
    assert fill(raw) == expected


@pytest.mark.parametrize(
    "raw",
    ["", "{", "}", "{}", "{{}}", "{x}", "{payloads.x}", "{state.x}", '{"a": {"b": 1}}', "${HOME}",
     "payload.x", "{payload", "a {context", "{payload x}", "function() { return {a: 1} }"],
)  # fmt: skip
def test_braces_that_open_no_path_are_just_braces(raw):
    assert compile_template(raw, AT) == Literal(raw)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("{{payload.n}}", "{payload.n}"),
        ("{{payload.n}} is {payload.n}", "{payload.n} is 3"),
        ('{"a": {payload.n}}', '{"a": 3}'),
        ("{{payload.n}", "{3"),
        ("{{{payload.n}}}", "{{payload.n}}"),
    ],
)
def test_doubled_braces_around_a_path_are_the_text_of_it(raw, expected):
    assert fill(raw) == expected


def test_maps_and_lists_are_filled_throughout_and_keys_are_not():
    raw = {"{payload.n}": ["{payload.n}", {"deep": "x{payload.n}"}], "fixed": [1, None, True]}
    assert fill(raw) == {"{payload.n}": [3, {"deep": "x3"}], "fixed": [1, None, True]}


@pytest.mark.parametrize(
    "raw",
    [
        "{payload.missing}",
        "x {payload.missing}",
        ["{payload.missing}"],
        {"a": {"b": ["{payload.missing}"]}},
    ],
)
def test_a_missing_path_fails_and_is_named(raw):
    answer = fill(raw)
    assert answer == Failure("payload.missing does not exist")


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("{payload.}", AT),
        ({"a": ["{payload.x..y}"]}, (*AT, "a", 0)),
        ({"m": "{payload.message"}, (*AT, "m")),
        ({"m": "{{payload.message"}, (*AT, "m")),
    ],
)
def test_a_malformed_reference_is_refused_at_load(raw, path):
    (problem,) = problems(raw)
    assert problem.path == path


def test_all_bad_references_are_reported_at_once():
    assert len(problems({"a": "{payload.}", "b": ["{context.", "{config..x}"]})) == 3


def test_bare_paths_are_references_only_where_asked_for():
    assert fill("payload.n", bare_paths=True) == 3
    assert fill("payload.n") == "payload.n"
    assert fill("a literal", bare_paths=True) == "a literal"


def test_all_entries_read_the_same_snapshot():
    scope = StepValues({"message": "old", "stdout": "hello"})
    raw = {"message": "{payload.stdout}", "mirror": "{payload.message}"}
    assert fill(raw, scope) == {"message": "hello", "mirror": "old"}


@given(JSON)
def test_a_value_read_by_reference_is_the_value(value):
    assert fill("{payload.x}", StepValues({"x": value})) is value


@given(JSON)
def test_a_value_inside_text_can_be_read_back(value):
    text = fill("<{payload.x}>", StepValues({"x": value}))
    inner = text[1:-1]
    assert inner == value if isinstance(value, str) else json.loads(inner) == value


@given(JSON)
def test_value_without_a_reference_is_unchanged(value):
    assert fill(value) == value


@given(st.text("{}payload.xcontext "))
def test_any_text_compiles_or_is_refused(text):
    template = compile_template(text, AT)
    if not isinstance(template, list):
        render(template, SCOPE)


@pytest.mark.parametrize(
    ("text", "found", "meant"),
    [
        ("{payloda.x}", "{payloda.x}", "payload"),
        ("to { Payload.x }", "{ Payload.x }", "payload"),
        ("{contxt.user}", "{contxt.user}", "context"),
        ("{configs.url}", "{configs.url}", "config"),
        ("{payload.n} {payloda.x}", "{payloda.x}", "payload"),
    ],
)
def test_misspelt_reference_causes_a_warning(text, found, meant):
    [warning] = find_mistakes({"a": [text]}, AT)
    assert warning.severity is Severity.WARNING
    assert (warning.found, warning.nearest) == (found, meant)
    assert warning.path == (*AT, "a", 0)


@pytest.mark.parametrize(
    ("raw", "at", "line"),
    [
        ({"text": {"payload.x": None}}, ("text",), 'text: "{payload.x}"'),
        ({"a": {"b": [{"context.user.id": None}]}}, ("a", "b", 0), '- "{context.user.id}"'),
        ({"payload.x": None}, (), 'with: {x: "{payload.x}"}'),
        ({"text": "{{ payload.x }}"}, ("text",), 'text: "{payload.x}"'),
        ({"text": "{{payload.x}}"}, ("text",), 'text: "{payload.x}"'),
        ({"text": 'say "{{ config.x }}"'}, ("text",), 'text: "say \\"{config.x}\\""'),
    ],
)
def test_template_that_would_stay_text_or_a_mapping_gets_a_corrected_line(raw, at, line):
    [warning] = find_mistakes(raw, AT)
    assert warning.severity is Severity.WARNING
    assert warning.path == (*AT, *at)
    assert warning.message.endswith(f"; write: {line}")


@pytest.mark.parametrize(
    "raw",
    [
        {"text": "for each line, write {{payload.x}} here"},
        {"text": {"payload.x": 1}},
        {"text": {"payload.x": None, "other": None}},
        {"text": {"payload": None}},
        {"text": "{{ user.name }}"},
    ],
)
def test_plausible_value_causes_no_warning(raw):
    assert list(find_mistakes(raw, AT)) == []


@pytest.mark.parametrize(
    "text", ["{payload.n}", "{payload.no}", "{{payloda.x}}", "{user.name}", "{payloda}", "{}", ""]
)
def test_other_text_causes_no_warning(text):
    assert list(find_mistakes(text, AT)) == []
