"""Find integers beyond 64 bits in JSON text, which parsing would change."""

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


def has_integer_beyond_64_bits(text: bytes) -> bool:
    """Whether the document at the start of `text` has an integer beyond signed 64 bits.

    `text` must be JSON that orjson accepts, with limited depth.
    """
    return _has_long_digits(text) and _has_integer(text, _is_beyond_64_bits)


def has_integer_altered_by_parsing(text: bytes) -> bool:
    """Whether parsing and serializing the document changes an integer.

    64 bits are kept, signed or unsigned. A larger integer is parsed as a float, which is harmless
    if it was written from a float, as some programs write all their numbers.
    """
    return _has_long_digits(text) and _has_integer(text, _is_altered)


def _has_long_digits(text: bytes) -> bool:
    """Whether a run of digits, even in a string or a fraction, is too large."""
    # For most documents a substring search is sufficient, at an eighth of the cost.
    return _DIGIT_RUN in text.translate(_DIGITS_AS_ZEROS) and any(
        len(run) > 19 or run > _MAX_DIGITS for run in _LONG_DIGITS.findall(text)
    )


def _is_beyond_64_bits(digits: str) -> bool:
    # No integer of more than 20 characters fits, and `int` refuses 4,300 digits.
    return len(digits) > 20 or not MIN_INTEGER <= int(digits) <= MAX_INTEGER


def _is_altered(digits: str) -> bool:
    return Decimal(repr(orjson.loads(digits))) != Decimal(digits)


def _has_integer(text: bytes, rule: Callable[[str], bool]) -> bool:
    """Whether `rule` is true of an integer; orjson parses long ones as floats, `json` does not."""
    found = False

    def check(digits: str) -> int:
        nonlocal found
        found = found or rule(digits)
        return 0

    json.JSONDecoder(parse_int=check).raw_decode(text.decode().lstrip())
    return found
