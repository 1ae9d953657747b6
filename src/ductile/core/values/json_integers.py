"""Integers in JSON that comes from outside: beyond 64 bits they would become other numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from decimal import Decimal

import orjson

MAX_INTEGER = 2**63 - 1
MIN_INTEGER = -(2**63)

_LONG_DIGITS = re.compile(rb"[0-9]{19,}")
_MAX_DIGITS = str(MAX_INTEGER).encode()
_DIGIT_RUN = b"0" * 19
_DIGITS_AS_ZEROS = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))


def beyond_64_bits(text: bytes) -> bool:
    """Whether the document that `text` begins with holds an integer of more than 64 bits.

    It is JSON that orjson has read, and not too deep.
    """
    return _maybe(text) and _any(text, _is_beyond_64_bits)


def altered_by_reading(text: bytes) -> bool:
    """Whether an integer of the same document would be written again as another number.

    64 bits are kept, signed or not. What is larger is read as a float: one that was written from a
    float, as some programs write all their numbers, is the same again.
    """
    return _maybe(text) and _any(text, _is_altered)


def _maybe(text: bytes) -> bool:
    """Whether any run of digits, be it inside a string or a fraction, is too large."""
    # A substring search settles it for most documents, at an eighth of the regex's cost.
    return _DIGIT_RUN in text.translate(_DIGITS_AS_ZEROS) and any(
        len(run) > 19 or run > _MAX_DIGITS for run in _LONG_DIGITS.findall(text)
    )


def _is_beyond_64_bits(digits: str) -> bool:
    # Beyond 20 characters no integer fits, and `int` itself refuses 4,300.
    return len(digits) > 20 or not MIN_INTEGER <= int(digits) <= MAX_INTEGER


def _is_altered(digits: str) -> bool:
    return Decimal(repr(orjson.loads(digits))) != Decimal(digits)


def _any(text: bytes, rule: Callable[[str], bool]) -> bool:
    """orjson reads such integers as floats, so they are looked for by another parser."""
    found = False

    def look(digits: str) -> int:
        nonlocal found
        found = found or rule(digits)
        return 0

    json.JSONDecoder(parse_int=look).raw_decode(text.decode().lstrip())
    return found
