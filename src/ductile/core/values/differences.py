"""Where two JSON documents differ, by path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ductile.errors import UsageError
from ductile.model import Json

ABSENT: Any = object()
"""Instead of a value: the document does not have it."""
MAX_PATTERNS, LONGEST_PATTERN = 50, 200


class Difference(NamedTuple):
    path: str
    """Keys and indexes joined by dots, such as `events.0.payload.id`."""
    before: Json
    after: Json


class IgnoredPaths:
    """Paths whose differences do not matter: each with all below it; `*` is any one key or index.

    Raises `UsageError` for an empty or long pattern, or too many of them.
    """

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self.patterns = tuple(dict.fromkeys(patterns))
        if len(self.patterns) > MAX_PATTERNS:
            raise UsageError(f"at most {MAX_PATTERNS} paths can be ignored")
        if any(not 0 < len(pattern) <= LONGEST_PATTERN for pattern in self.patterns):
            raise UsageError(f"an ignored path has 1 to {LONGEST_PATTERN} characters")
        self._expression = re.compile("|".join(map(_to_expression, self.patterns)) or r"(?!)")

    def matches(self, path: str) -> bool:
        return self._expression.fullmatch(path) is not None


def _to_expression(pattern: str) -> str:
    parts = (r"[^.]+" if part == "*" else re.escape(part) for part in pattern.split("."))
    return rf"{re.escape('.').join(parts)}(?:\.(?s:.*))?"


def find_differences(before: Json, after: Json, path: str = "") -> Iterator[Difference]:
    """The smallest parts that differ, in the order of their keys."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}):
            yield from find_differences(
                before.get(key, ABSENT), after.get(key, ABSENT), _join(path, key)
            )
    elif isinstance(before, list) and isinstance(after, list):
        for index in range(max(len(before), len(after))):
            yield from find_differences(
                before[index] if index < len(before) else ABSENT,
                after[index] if index < len(after) else ABSENT,
                _join(path, str(index)),
            )
    elif not _is_same(before, after):
        yield Difference(path, before, after)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _is_same(before: Json, after: Json) -> bool:
    # In Python True is 1, in JSON it is not.
    return isinstance(before, bool) == isinstance(after, bool) and bool(before == after)
