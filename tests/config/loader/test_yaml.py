"""YAML 1.2: what scalars mean, what is refused, where it stands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.config.loader.nodes import Listing, Scalar, Table
from ductile.config.loader.yaml import MAX_DEPTH, NotJson, compose, resolve
from ductile.errors import Problem
from tests.config.conftest import patient

FILE = "config.yaml"


def tree(text: str) -> Table:
    node, problems = compose(text, FILE)
    assert not problems, problems
    assert isinstance(node, Table)
    return node


def problem(text: str) -> Problem:
    _, problems = compose(text, FILE)
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize("text", ["on", "off", "yes", "no", "Yes", "y", "12:30:45", "1_000", "0b1"])
def test_what_yaml_1_1_took_for_values_is_text(text: str) -> None:
    assert resolve(text) == text


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null_in_all_its_spellings(text: str) -> None:
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
def test_values_of_the_core_schema(text: str, value: object) -> None:
    assert resolve(text) == value
    assert type(resolve(text)) is type(value)


@pytest.mark.parametrize(
    "text", [".inf", "-.INF", ".nan", "1e999", "18446744073709551616", "9" * 5000]
)
def test_numbers_that_json_cannot_carry(text: str) -> None:
    with pytest.raises(NotJson):
        resolve(text)


@patient
@given(st.text(alphabet="0123456789abcdefxoinfNAn.+-eE~ulTr_:", max_size=12))
def test_resolving_never_fails_otherwise(text: str) -> None:
    try:
        resolve(text)
    except NotJson:
        pass


@patient
@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_come_back(number: int) -> None:
    assert resolve(str(number)) == number


def test_every_node_knows_its_place() -> None:
    table = tree("a: 1\nb:\n  - é: [x, yy]\n")
    item = table.get("b")
    assert isinstance(item, Listing)
    inner = item.items[0]
    assert isinstance(inner, Table)
    listing = inner.get("é")
    assert isinstance(listing, Listing)
    assert table.items["a"].value.place == (FILE, 1, 4)
    assert table.items["b"].key == (FILE, 2, 1)
    assert inner.items["é"].key == (FILE, 3, 5)
    assert listing.items[1].place == (FILE, 3, 12)


def test_a_duplicate_key_names_both_lines() -> None:
    found = problem("a: 1\nb: 2\na: 3\n")
    assert (found.line, found.column) == (3, 1)
    assert "'a' is already set in line 1" in found.message


def test_a_duplicate_key_names_its_path_and_what_is_allowed() -> None:
    found = problem("a:\n  - x: 1\n  - b: {c: 1, c: 2}\n")
    assert found.path == ("a", 1, "b", "c")
    assert (found.found, found.allowed) == ("'c' again", "each key once")


def test_the_same_key_in_different_mappings_is_fine() -> None:
    tree("a: {x: 1}\nb: {x: 1}\n")


def test_several_duplicates_are_all_reported() -> None:
    _, problems = compose("a: 1\na: 2\nb: 1\nb: 2\n", FILE)
    assert [found.line for found in problems] == [2, 4]


def test_a_syntax_error_has_its_place() -> None:
    found = problem("a: [1, 2\nb: 3\n")
    assert found.line == 2
    assert "not valid YAML" in found.message


def test_a_control_character_has_its_place() -> None:
    found = problem("é: 1\nü: ö\x01\n")
    assert (found.line, found.column, found.found) == (2, 5, "U+0001")


def test_a_second_document_is_refused() -> None:
    assert problem("a: 1\n---\nb: 2\n").line == 2


def test_an_unknown_tag_is_refused() -> None:
    assert problem("a: !python/object:os.system x\n").column == 4


def test_a_list_cannot_be_a_key() -> None:
    assert "cannot be a key" in problem("? [a, b]\n: 1\n").message


def test_an_alias_stands_for_its_anchor() -> None:
    table = tree("a: &x [1]\nb: *x\n")
    assert table.get("a") is table.get("b")


def test_an_alias_without_anchor_is_refused() -> None:
    assert problem("a: *nowhere\n").column == 4


def test_an_alias_inside_its_own_anchor_is_refused() -> None:
    assert "inside what it names" in problem("a: &x [*x]\n").message


def test_the_merge_key_takes_over_what_is_not_set() -> None:
    table = tree("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n")
    use = table.get("use")
    assert isinstance(use, Table)
    texts = {k: e.value.text for k, e in use.items.items() if isinstance(e.value, Scalar)}
    assert texts == {"x": "1", "y": "3"}


def test_a_quoted_merge_key_is_a_key() -> None:
    assert "<<" in tree('"<<": 1\n').items


def test_a_merge_of_text_is_refused() -> None:
    found = problem("a: {<<: text}\n")
    assert (found.message, found.path, found.found) == ("cannot be merged", ("a", "<<"), "text")
    assert found.allowed == "a mapping or a list of them"


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_an_alias_bomb_is_refused_before_it_is_expanded() -> None:
    """Nine to the power of sixty values: to count them one by one would never end."""
    assert "too many values" in problem(bomb(60)).message


def test_aliases_cannot_build_depth() -> None:
    chain = ["a0: &a0 [[[[[[[[[[x]]]]]]]]]]"]
    chain += [f"a{n}: &a{n} [[[[[[[[[[*a{n - 1}]]]]]]]]]]" for n in range(1, 5000)]
    assert "nested too deeply" in problem("\n".join(chain)).message


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_a_hundred_thousand_levels_are_refused(opening: str) -> None:
    assert "nested too deeply" in problem(opening * 100_000).message


def test_the_deepest_document_that_is_taken() -> None:
    tree("a: " + "[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1))


@patient
@given(st.text(max_size=200))
def test_no_text_makes_it_fail_otherwise(text: str) -> None:
    compose(text.encode(errors="replace").decode(), FILE)
