"""JSON values: read by path, compared and formatted; and `Failure`, an expected error as a value.

A value is None, bool, int, float, str, list or dict, as `json` and `orjson` return them. YAML
gives the same types, so a number in a configuration equals that number in a payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final, Literal

import orjson

from ductile._fast_dataclass import dataclass
from ductile.model import Json

ROOTS = ("payload", "context", "config")


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""The value at a path that does not exist. `null` is a value and is not missing."""
Missing = Literal[_Missing.MISSING]


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason of an expected failure, as text for `last_error` of the job."""

    reason: str


@dataclass(frozen=True, slots=True)
class StepValues:
    """The values that the expressions of a step can read: one consistent snapshot."""

    payload: Json = field(default_factory=dict)
    context: Json = field(default_factory=dict)
    config: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref:
    """A parsed path such as `payload.user.name`; a number is a list index (`tags.0`)."""

    root: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.root, *self.keys))

    def read(self, scope: StepValues) -> Json | Missing:
        value = getattr(scope, self.root)
        for key in self.keys:
            if isinstance(value, dict):
                value = value.get(key, MISSING)
            elif isinstance(value, list) and key.isdecimal() and key.isascii():
                index = int(key) if len(key) < 10 else len(value)
                value = value[index] if index < len(value) else MISSING
            else:
                return MISSING
        return value


def parse_ref(text: Json, roots: tuple[str, ...] = ROOTS) -> Ref | Failure:
    """Parse a path, or return why it is invalid."""
    if not isinstance(text, str):
        return Failure("a path must be text, such as payload.name")
    root, *keys = (part.strip() for part in text.split("."))
    if root not in roots:
        return Failure(f"a path must start with {_join_words(roots)}")
    if not all(keys):
        return Failure("a path must not have an empty part")
    return Ref(root, tuple(keys))


def are_equal(one: Json, other: Json) -> bool:
    """Whether two values are equal in JSON: 1 equals 1.0, but not true and not "1"."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float):
        return isinstance(other, int | float) and one == other
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(are_equal(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list):
        return (
            isinstance(other, list) and len(one) == len(other) and all(map(are_equal, one, other))
        )
    return type(one) is type(other) and bool(one == other)


def to_plain(value: Json) -> Json:
    """A value of the configuration with mappings as dicts and sequences as lists."""
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def size_of(value: Json) -> int:
    """The size of the value as JSON, in bytes, as the ledger stores it."""
    return len(orjson.dumps(value))


def shorten(value: Json, limit: int = 60) -> str:
    """The value as JSON for a message, cut to `limit` characters."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _join_words(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
