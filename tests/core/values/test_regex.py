from __future__ import annotations

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ductile.core.values.json_values import Failure
from ductile.core.values.regex import BUDGET, MAX_TEXT, Regex, compile_regex


def matches(pattern: str, text: str) -> bool | Failure:
    regex = compile_regex(pattern)
    assert isinstance(regex, Regex), regex
    return regex.fullmatch(text)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("", "", True),
        ("", "a", False),
        ("abc", "abc", True),
        ("abc", "abcd", False),
        ("bc", "abc", False),
        ("a|bc|", "", True),
        ("a|bc|", "bc", True),
        ("(a|b)*c", "ababc", True),
        ("a{2}", "aa", True),
        ("a{2}", "aaa", False),
        ("a{2,}", "aaaa", True),
        ("a{1,3}", "aaaa", False),
        ("a{0}b", "b", True),
        ("a{b", "a{b", True),
        ("a{}", "a{}", True),
        ("x{1,2}{", "xx{", True),
        ("a*?b+?c??", "aabbc", True),
        (r"\d{4}-\d\d", "2026-02", True),
        (r"\d", "٣", False),
        (r"\w+\s\W", "ab_9 -", True),
        (r"\D\S", "ab", True),
        (".", "\n", False),
        ("(?s).", "\n", True),
        ("[a-c]+", "abc", True),
        ("[^a-c]", "b", False),
        ("[]a]+", "a]", True),
        ("[a-]", "-", True),
        (r"[\d\-x]+", "1-x", True),
        (r"[^\d]", "7", False),
        (r"[\D]", "x", True),
        ("[[:alpha:][:^digit:]]+", "a-", True),
        (r"\x41\x{1F600}\.", "A😀.", True),
        (r"\t\n\r\f\v\a", "\t\n\r\f\v\a", True),
        ("(?i)straße", "STRAßE", True),
        ("(?i)[a-c]x", "BX", True),
        ("(?i)[^a]", "A", False),
        ("(?i:a)b", "Ab", True),
        ("(?i:a)b", "AB", False),
        ("a(?i)b|c", "C", True),
        ("(?i)a(?-i)b", "AB", False),
        ("(?P<year>[0-9]+)(?<rest>x)(?:y)", "2026xy", True),
        ("^abc$", "abc", True),
        ("a$b", "ab", False),
        ("a$", "a\n", False),
        (r"\Aab\z", "ab", True),
        ("(?m)^a$\n^b$", "a\nb", True),
        ("^a$\n^b$", "a\nb", False),
        (r"\bfoo\b.*", "foo bar", True),
        (r"foo\b.*", "foobar", False),
        (r"foo\Bbar", "foobar", True),
        (r"(\b|x)*a", "xxa", True),
        ("(^)*a", "a", True),
        (r"[\w.+-]+@[\w-]+\.[\w.-]+", "a.b+c@example.co.uk", True),
        ("é+", "éé", True),
    ],
)
def test_the_whole_text_is_matched_as_go_would(pattern, text, expected):
    assert matches(pattern, text) is expected


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)", "look-ahead"),
        ("(?!a)", "look-ahead"),
        ("(?<=a)b", "look-behind"),
        ("(?<!a)b", "look-behind"),
        (r"(a)\1", "backreferences"),
        ("(?P<x>a)(?P=x)", "backreferences"),
        ("(?>a)", "atomic"),
        ("a*+", "possessive"),
        ("(?(1)a)", "conditional"),
        ("(?#x)", "comments"),
        ("(?x)a", r"\(\?x"),
        (r"\pL", r"\\p"),
        (r"\Qa\E", r"\\Q"),
        (r"\8", "backreferences"),
        ("a**", "quantifier after"),
        ("*a", "nothing to repeat"),
        ("|+", "nothing to repeat"),
        ("(a", r"without its \)"),
        ("a)", r"without its \("),
        ("[a", "without its ]"),
        ("[", "without its ]"),
        ("[z-a]", "out of order"),
        (r"[a-\d]", "out of order"),
        ("[[:nope:]]", "not known"),
        ("[[:alpha", "without its :]"),
        ("a{,3}", "write {0,3}"),
        ("a{3,2}", "upper bound"),
        ("a{1001}", "1000 repetitions"),
        ("(?P<1>a)", "no name"),
        ("(?P<a", "without its >"),
        ("(?i", "without its"),
        ("\\", "at the end"),
        (r"\xZZ", "hexadecimal"),
        (r"\x{110000}", "hexadecimal"),
        ("(" * 60 + ")" * 60, "nested deeper"),
        ("a" * 1001, "longer than"),
        ("((a{1000}){1000}){1000}", "unfolds"),
        ("(?:(?:(?:){1000}){1000}){1000}", "unfolds"),
    ],
)
def test_what_is_wrong_or_unsupported_is_refused_by_name(pattern, reason):
    refused = compile_regex(pattern)
    assert isinstance(refused, Failure)
    assert re.search(reason, refused.reason)
    assert "character" in refused.reason or "unfolds" in refused.reason


ATOMS = st.sampled_from(["a", "b", "c", ".", "[ab]", "[^a]", r"\d", r"\w", r"\W", "1", "-", r"\-"])
EDGES = st.sampled_from(["^", "$", r"\b", r"\B"])
QUANTIFIERS = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,3}", "{1,}", "*?", "+?", "{0}"])


def patterns() -> st.SearchStrategy[str]:
    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        group = inner.map(lambda text: f"(?:{text})")
        return (
            st.lists(inner, max_size=3).map("".join)
            | st.lists(group, min_size=1, max_size=3).map("|".join)
            | st.tuples(group, QUANTIFIERS).map("".join)
            | group
        )

    return st.recursive(ATOMS | EDGES, grow, max_leaves=8)


def oracle(pattern: str, text: str, flags: int = 0) -> bool:
    # In an empty text Go's \B holds, and Python's did not before 3.14.
    python = pattern.replace("$", r"\Z")
    if not text:
        python = python.replace(r"\B", "")
    return re.compile(python, re.ASCII | flags).fullmatch(text) is not None


@settings(max_examples=400, deadline=None)
@given(patterns(), st.lists(st.text("ab1-\n", max_size=6), min_size=1, max_size=4))
def test_it_agrees_with_python_on_random_patterns_and_short_texts(pattern, texts):
    for text in texts:
        assert matches(pattern, text) is oracle(pattern, text)


@settings(max_examples=100, deadline=None)
@given(patterns(), st.text("aAbB", max_size=6))
def test_folding_case_agrees_with_python(pattern, text):
    assert matches(f"(?i){pattern}", text) is oracle(pattern, text, re.IGNORECASE)


@given(st.text(max_size=40))
def test_an_escaped_text_matches_itself_and_any_text_compiles_or_is_refused(text):
    assert matches("".join(rf"\x{{{ord(c):x}}}" for c in text), text) is True
    assert isinstance(compile_regex(text), Regex | Failure)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("(a+)+$", "a" * 100_000 + "b"),
        ("(a|a)*b", "a" * 1_000_000),
        ("(a|aa)+", "a" * 100_000 + "c"),
        ("(.*)*x", "y" * 100_000),
        ("(a*)*(a*)*(a*)*b", "a" * 100_000),
        (r"(\w+\s?)+!", "word " * 20_000),
        ("(x+x+)+y", "x" * 100_000),
        ("a{0,500}" * 2 + "b", "a" * 1000),
        ("^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 100_000),
    ],
)
def test_patterns_that_stall_a_backtracker_take_linear_time(pattern, text):
    """A backtracker would take longer than any time limit of a test."""
    assert matches(pattern, text) is False


def test_a_match_that_would_be_too_dear_gives_up_and_says_so():
    chance = random.Random(1)
    text = "".join(chance.choice("ab") for _ in range(200_000))
    answer = matches("(a|b)*a(a|b){200}", text)
    assert isinstance(answer, Failure)
    assert "gave up" in answer.reason


def test_many_distinct_characters_are_bounded_too():
    text = "".join(map(chr, range(0x100, 0xD000))) * 3
    answer = matches("|".join(f"[{chr(c)}-{chr(c + 1)}]" for c in range(97, 120, 2)) + "|.*", text)
    assert answer is True or isinstance(answer, Failure)
    assert BUDGET > 0


def test_a_text_that_is_too_long_is_refused():
    answer = matches("a*", "a" * (MAX_TEXT + 1))
    assert isinstance(answer, Failure)
    assert "too long" in answer.reason
