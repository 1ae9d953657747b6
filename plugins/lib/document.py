"""JSON from outside, kept to what the gateway takes back in an answer."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

DEEPEST = 80
"""Levels; an answer may have 100, and wraps the document in a few of its own."""


def parse(raw: bytes | str) -> Any:
    """The value. Raises `ValueError` for what is no JSON, or could not be passed on."""
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_int=_whole, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deep") from None
    level = [value]
    for _ in range(DEEPEST):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise ValueError("nested too deep")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


def _whole(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError("an integer beyond 64 bits")
    return int(digits)


def _finite(digits: str) -> float:
    found = float(digits)
    if found in (float("inf"), float("-inf")):
        raise ValueError("a number that is too large")
    return found
