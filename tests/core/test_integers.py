from __future__ import annotations

import pytest

from ductile.core.integers import MAX_INTEGER, MIN_INTEGER, beyond_64_bits


@pytest.mark.parametrize(
    "text",
    [
        b"%d" % (MAX_INTEGER + 1),
        b"[%d]" % (MIN_INTEGER - 1),
        b' {"a": [1, {"b": 123456789012345678901234567890}]} and more',
        b'{"a": %s}' % (b"9" * 5000),
    ],
)
def test_an_integer_beyond_64_bits_is_found(text: bytes) -> None:
    assert beyond_64_bits(text)


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
def test_what_only_looks_like_one_is_none(text: bytes) -> None:
    assert not beyond_64_bits(text)
