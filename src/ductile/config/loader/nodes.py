"""The tree that YAML becomes before anybody gives it a meaning: text with places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ductile.errors import Path, Problem, Severity
from ductile.record import dataclass

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""The plain scalars that are nothing by the core schema of YAML 1.2."""


class Place(NamedTuple):
    """Where something was written; line and column count from 1."""

    file: str
    line: int
    column: int

    def problem(
        self,
        message: str,
        *,
        path: Path = (),
        found: str | None = None,
        allowed: str | None = None,
        nearest: str | None = None,
        severity: Severity = Severity.ERROR,
    ) -> Problem:
        return Problem(
            message,
            path,
            self.file,
            self.line,
            self.column,
            found=found,
            allowed=allowed,
            nearest=nearest,
            severity=severity,
        )


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    place: Place
    style: str = ""
    """Empty for a plain scalar, else the quote or block indicator it was written with."""
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    items: tuple[Node, ...]
    place: Place


@dataclass(frozen=True, slots=True)
class Entry:
    key: Place
    value: Node

    @property
    def place(self) -> Place:
        """What an editor should jump to: a scalar itself, else the key that holds the block."""
        return self.value.place if isinstance(self.value, Scalar) else self.key


@dataclass(frozen=True, slots=True)
class Table:
    items: Mapping[str, Entry]
    place: Place

    def get(self, key: str) -> Node | None:
        entry = self.items.get(key)
        return entry.value if entry else None

    def without(self, *keys: str) -> Table:
        return Table({key: item for key, item in self.items.items() if key not in keys}, self.place)

    def replacing(self, key: str, entry: Entry) -> Table:
        """The same table with `key` set; a key it already had keeps its position."""
        return Table({**self.items, key: entry}, self.place)


Node = Scalar | Listing | Table


def is_null(node: Node) -> bool:
    """Whether a key was left empty, or says `~` or `null`."""
    if not isinstance(node, Scalar) or node.style or node.tag is not None:
        return False
    return node.text in NULLS
