"""The YAML 1.2 parser: types of scalars, locations, rejected documents and limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.nodes import MappingNode, ScalarNode, SequenceNode
from ductile.config.loader.yaml import MAX_DEPTH, NotJson, compose, resolve
from ductile.errors import Problem
from tests.config.conftest import no_deadline

FILE = "config.yaml"


def tree(text: str) -> MappingNode:
    node, problems = compose(text, FILE)
    assert not problems, problems
    assert isinstance(node, MappingNode)
    return node


def problem(text: str) -> Problem:
    _, problems = compose(text, FILE)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize("text", ["on", "off", "yes", "no", "Yes", "y", "12:30:45", "1_000", "0b1"])
def test_yaml_1_1_literals_are_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_literals(text: str) -> None:
    assert resolve(text) is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("FALSE", False),
        ("0", 0),
        ("-12", -12),
        ("+3", 3),
        ("0o17", 15),
        ("0xFF", 255),
        ("010", 10),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_core_schema_literals(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    "text", [".inf", "-.INF", ".nan", "1e999", "18446744073709551616", "9" * 5000]
)
def test_numbers_that_json_cannot_represent_raise(text: str) -> None:
    with pytest.raises(NotJson):
        resolve(text)


@no_deadline
@given(st.text(alphabet="0123456789abcdefxoinfNAn.+-eE~ulTr_:", max_size=12))
def test_resolve_raises_nothing_else(text: str) -> None:
    try:
        resolve(text)
    except NotJson:
        pass


@no_deadline
@given(st.integers(-(2**63), 2**64 - 1))
def test_64_bit_integers_are_exact(number: int) -> None:
    assert resolve(str(number)) == number


def test_every_node_has_its_location() -> None:
    table = tree("a: 1\nb:\n  - é: [x, yy]\n")
    item = table.get("b")
    assert isinstance(item, SequenceNode)
    inner = item.items[0]
    assert isinstance(inner, MappingNode)
    listing = inner.get("é")
    assert isinstance(listing, SequenceNode)
    assert table.items["a"].value.location == (FILE, 1, 4)
    assert table.items["b"].key == (FILE, 2, 1)
    assert inner.items["é"].key == (FILE, 3, 5)
    assert listing.items[1].location == (FILE, 3, 12)


def test_repeated_key_is_reported_with_both_lines() -> None:
    found = problem("a: 1\nb: 2\na: 3\n")
    assert (found.line, found.column) == (3, 1)
    assert "'a' is already set in line 1" in found.message


def test_repeated_key_is_reported_with_its_path() -> None:
    found = problem("a:\n  - x: 1\n  - b: {c: 1, c: 2}\n")
    assert found.path == ("a", 1, "b", "c")
    assert (found.found, found.allowed) == ("'c' again", "each key once")


def test_same_key_in_different_mappings_is_accepted() -> None:
    tree("a: {x: 1}\nb: {x: 1}\n")


def test_every_repeated_key_is_reported() -> None:
    _, problems = compose("a: 1\na: 2\nb: 1\nb: 2\n", FILE)
    assert [found.line for found in problems] == [2, 4]


def test_syntax_error_has_its_location() -> None:
    found = problem("a: [1, 2\nb: 3\n")
    assert found.line == 2
    assert "not valid YAML" in found.message


def test_control_character_has_its_location() -> None:
    found = problem("é: 1\nü: ö\x01\n")
    assert (found.line, found.column, found.found) == (2, 5, "U+0001")


def test_second_document_is_rejected() -> None:
    assert problem("a: 1\n---\nb: 2\n").line == 2


def test_unknown_tag_is_rejected() -> None:
    assert problem("a: !python/object:os.system x\n").column == 4


def test_list_as_key_is_rejected() -> None:
    assert "cannot be a key" in problem("? [a, b]\n: 1\n").message


def test_alias_is_the_node_of_its_anchor() -> None:
    table = tree("a: &x [1]\nb: *x\n")
    assert table.get("a") is table.get("b")


def test_alias_without_anchor_is_rejected() -> None:
    assert problem("a: *nowhere\n").column == 4


def test_recursive_alias_is_rejected() -> None:
    assert "inside its own anchor" in problem("a: &x [*x]\n").message


def test_merge_key_adds_missing_keys() -> None:
    table = tree("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n")
    use = table.get("use")
    assert isinstance(use, MappingNode)
    texts = {k: e.value.text for k, e in use.items.items() if isinstance(e.value, ScalarNode)}
    assert texts == {"x": "1", "y": "3"}


def test_quoted_merge_key_is_an_ordinary_key() -> None:
    assert "<<" in tree('"<<": 1\n').items


def test_merge_of_text_is_rejected() -> None:
    found = problem("a: {<<: text}\n")
    assert (found.message, found.path, found.found) == (
        "`<<` cannot merge this value",
        ("a", "<<"),
        "text",
    )
    assert found.allowed == "a mapping or a list of them"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_alias_bomb_is_rejected() -> None:
    assert "too many values" in problem(bomb(60)).message


def test_aliases_count_for_the_depth_limit() -> None:
    chain = ["a0: &a0 [[[[[[[[[[x]]]]]]]]]]"]
    chain += [f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]" for n in range(1, 5000)]
    assert "nested too deeply" in problem("\n".join(chain)).message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_rejected(opening: str) -> None:
    assert "nested too deeply" in problem(opening * 100_000).message


def test_deepest_allowed_nesting() -> None:
    tree("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))


@no_deadline
@given(st.text(max_size=200))
def test_compose_raises_nothing(text: str) -> None:
    compose(text.encode(errors="replace").decode(), FILE)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("text: {{ payload.x }}", 'text: "{payload.x}"'),
        ("- text: {payload.x} and {payload.y}", 'text: "{payload.x} and {payload.y}"'),
    ],
)
def test_syntax_error_of_an_unquoted_template_has_the_corrected_line(line: str, hint: str) -> None:
    node, problems = compose(f"a: 1\nb:\n  {line}\n", "f")
    assert node is None
    assert problems[0].message.endswith(f"; a template needs quotes; write: {hint}")


def test_other_syntax_errors_have_no_such_hint() -> None:
    _, problems = compose("a: {b} c\n", "f")
    assert "template" not in problems[0].message
