from __future__ import annotations

from decimal import Decimal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductile.core.values.json_integers import (
    MAX_INTEGER,
    MIN_INTEGER,
    has_integer_altered_by_parsing,
    has_integer_beyond_64_bits,
)


@pytest.mark.parametrize(
    "text",
    [
        b"%d" % (MAX_INTEGER + 1),
        b"[%d]" % (MIN_INTEGER - 1),
        b' {"a": [1, {"b": 123456789012345678901234567890}]} and more',
        b'{"a": %s}' % (b"9" * 5000),
    ],
)
def test_integers_beyond_64_bits_are_found(text: bytes) -> None:
    assert has_integer_beyond_64_bits(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"%d" % MAX_INTEGER,
        b"[%d]" % MIN_INTEGER,
        b'{"a": "123456789012345678901234567890"}',
        b"[0.123456789012345678901234567890, 1e30]",
        b'{"a": 1} 123456789012345678901234567890',
    ],
)
def test_other_digits_are_not_reported(text: bytes) -> None:
    assert not has_integer_beyond_64_bits(text)


@pytest.mark.parametrize(
    "text",
    [
        b"%d" % 2**64,
        b"[%d]" % (MIN_INTEGER - 1),
        b' {"a": [1, {"b": 123456789012345678901234567890}]} and more',
    ],
)
def test_integers_that_parsing_changes_are_found(text: bytes) -> None:
    assert has_integer_altered_by_parsing(text)


@pytest.mark.parametrize(
    "text",
    [
        b"%d" % (2**64 - 1),
        b"[%d]" % MIN_INTEGER,
        b"[1000000000000000000000000000000, -123456789012345680000]",
        b'{"a": "123456789012345678901234567890"}',
        b'{"a": 1} 123456789012345678901234567890',
    ],
)
def test_integers_that_parsing_keeps_are_not_reported(text: bytes) -> None:
    assert not has_integer_altered_by_parsing(text)


@given(st.integers(-(2**80), 2**80) | st.floats(-1e20, 1e20).map(round))
def test_unreported_integers_survive_a_round_trip(number: int) -> None:
    text = b"%d" % number
    again = orjson.dumps(orjson.loads(text)).decode()
    assert has_integer_altered_by_parsing(text) is (Decimal(again) != number)
