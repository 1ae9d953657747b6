"""JSON values: reading them by path, comparing them, and the failure that is a value.

A value is what `json` or `orjson` makes of a document: None, bool, int, float, str, list,
dict. What YAML gives is the same, so a number in a config equals that number in a payload.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import Enum
from typing import Final, Literal

import orjson

from ductile.model import Json
from ductile.record import dataclass

ROOTS = ("payload", "context", "config")


class _Missing(Enum):
    MISSING = "missing"


MISSING: Final = _Missing.MISSING
"""What a path yields that leads nowhere. `null` is a value, and is not missing."""
Missing = Literal[_Missing.MISSING]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something expected could not be done, in words for the job's `last_error`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Scope:
    """What the expressions of one step can see, all of it read at one moment."""

    payload: Json = field(default_factory=dict)
    context: Json = field(default_factory=dict)
    config: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ref:
    """A parsed path such as `payload.user.name`; a list is entered by a number (`tags.0`)."""

    root: str
    keys: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join((self.root, *self.keys))

    def read(self, scope: Scope) -> Json | Missing:
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
    """Read a path, or say what is wrong with it."""
    if not isinstance(text, str):
        return Failure("a path must be text, such as payload.name")
    root, *keys = (part.strip() for part in text.split("."))
    if root not in roots:
        return Failure(f"a path must begin with {_either(roots)}")
    if not all(keys):
        return Failure("a path must have no empty part")
    return Ref(root, tuple(keys))


def same(one: Json, other: Json) -> bool:
    """Equality as JSON means it: 1 is 1.0, but true is not 1 and "1" is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float):
        return isinstance(other, int | float) and one == other
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(value, other[key]) for key, value in one.items())
        )
    if isinstance(one, list):
        return isinstance(other, list) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and bool(one == other)


def plain(value: Json) -> Json:
    """A value of the config as JSON would give it, however it was frozen."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def is_number(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def size_of(value: Json) -> int:
    """How many bytes the value takes as JSON, as the ledger would store it."""
    return len(orjson.dumps(value))


def shown(value: Json, limit: int = 60) -> str:
    """The value as a message shows it: JSON where it can be, and never long."""
    try:
        text = orjson.dumps(value).decode()
    except orjson.JSONEncodeError:
        text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _either(words: tuple[str, ...]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
