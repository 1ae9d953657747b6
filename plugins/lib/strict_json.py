"""Parse JSON, and reject values that a response to the gateway could not contain."""

from __future__ import annotations

import json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAX_DEPTH = 80
"""A response may have 100 levels and adds a few around the document."""


def parse(raw: bytes | str) -> Any:
    """The parsed value. Raises `ValueError` if it is not valid or not representable."""
    try:
        value = json.loads(
            raw, parse_constant=_reject, parse_int=_parse_int, parse_float=_parse_float
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for container in level
            if isinstance(container, dict | list)
            for item in (container.values() if isinstance(container, dict) else container)
            if isinstance(item, dict | list)
        ]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _reject(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not valid JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > 20 or not -(2**63) <= int(digits) < 2**63:
        raise ValueError("it has an integer beyond 64 bits")
    return int(digits)


def _parse_float(digits: str) -> float:
    found = float(digits)
    if found in (float("inf"), float("-inf")):
        raise ValueError("it has a number that is too large")
    return found
