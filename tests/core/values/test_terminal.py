"""Escaping of characters that a terminal would obey."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.values.terminal import escape_controls, escape_json, escape_line

BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
UNSAFE = [chr(code) for code in (*range(32), *range(127, 160))] + [
    *BIDI,
    "\u2028",
    "\u2029",
    "\U000e0041",
]


@pytest.mark.parametrize("character", UNSAFE, ids=lambda c: f"U+{ord(c):04X}")
def test_control_characters_are_escaped(character: str) -> None:
    assert escape_line(f"a{character}b").isprintable()
    assert json.loads(escape_json(json.dumps(character, ensure_ascii=False))) == character
    shown = escape_controls(f"a{character}b")
    assert shown == f"a{character}b" if character in "\t\n" else shown.isprintable()


def test_escapes_name_the_character() -> None:
    text = "\x1b[2J\x9b1m\n\u202e\ud800\U000e0041"
    assert escape_controls(text) == "\\x1b[2J\\x9b1m\n\\u202e\\ud800\\U000e0041"
    assert escape_line(text) == "\\x1b[2J\\x9b1m\\n\\u202e\\ud800\\U000e0041"


def test_other_text_is_kept() -> None:
    text = "Grüße, 日本語, שלום, 👩\u200d👩\u200d👧 e\u0301 \u00a0"
    assert escape_controls(text) == escape_line(text) == text


@given(st.text())
def test_json_keeps_its_value_and_has_no_control_characters(text: str) -> None:
    shown = escape_json(json.dumps({text: [text]}, ensure_ascii=False, indent=2))
    assert json.loads(shown) == {text: [text]}
    assert not [c for c in shown if (c != "\n" and unicodedata.category(c) == "Cc") or c in BIDI]
