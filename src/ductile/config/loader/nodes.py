"""The tree of a YAML text before its scalars have types: texts with their locations."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ductile._fast_dataclass import dataclass
from ductile.errors import Path, Problem, Severity
from ductile.model import Json

NULLS = frozenset({"", "~", "null", "Null", "NULL"})
"""The plain scalars that are null by the core schema of YAML 1.2."""


class Location(NamedTuple):
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
class ScalarNode:
    text: str
    location: Location
    style: str = ""
    """Empty for a plain scalar, otherwise the quote or block indicator it was written with."""
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class SequenceNode:
    items: tuple[Node, ...]
    location: Location


@dataclass(frozen=True, slots=True)
class MappingEntry:
    key: Location
    value: Node

    @property
    def location(self) -> Location:
        """Where an editor should jump to: a scalar itself, or the key of a collection."""
        return self.value.location if isinstance(self.value, ScalarNode) else self.key


@dataclass(frozen=True, slots=True)
class MappingNode:
    items: Mapping[str, MappingEntry]
    location: Location

    def get(self, key: str) -> Node | None:
        entry = self.items.get(key)
        return entry.value if entry else None

    def without(self, *keys: str) -> MappingNode:
        kept = {key: entry for key, entry in self.items.items() if key not in keys}
        return MappingNode(kept, self.location)

    def replacing(self, key: str, entry: MappingEntry) -> MappingNode:
        """The same mapping with `key` set; an existing key keeps its position."""
        return MappingNode({**self.items, key: entry}, self.location)


Node = ScalarNode | SequenceNode | MappingNode


def is_null(node: Node) -> bool:
    """Whether a key was left empty, or has the value `~` or `null`."""
    if not isinstance(node, ScalarNode) or node.style or node.tag is not None:
        return False
    return node.text in NULLS


def to_json(
    node: Node, read_scalar: Callable[[ScalarNode], Json], read_key: Callable[[str], str] = str
) -> Json:
    """The tree as JSON values; `read_scalar` and `read_key` decide what its texts mean."""
    match node:
        case ScalarNode():
            return read_scalar(node)
        case SequenceNode():
            return [to_json(item, read_scalar, read_key) for item in node.items]
        case MappingNode():
            return {
                read_key(key): to_json(entry.value, read_scalar, read_key)
                for key, entry in node.items.items()
            }


def locate(root: Node, path: Path, *, key: bool = False) -> Location:
    """The location of the value at `path`, or of the nearest parent that exists.

    With `key`, the location of its key instead.
    """
    node, location = root, root.location
    for part in path:
        if isinstance(node, MappingNode) and str(part) in node.items:
            entry = node.items[str(part)]
            node, location = entry.value, entry.key if key else entry.location
        elif isinstance(node, SequenceNode) and isinstance(part, int) and part < len(node.items):
            node = node.items[part]
            location = node.location
        else:
            break
    return location


@dataclass(frozen=True, slots=True)
class Locations:
    """The location of every path of the merged configuration; `()` is the main file."""

    values: Mapping[Path, Location]
    keys: Mapping[Path, Location]

    def locate(self, path: Path) -> Location:
        """The location of the value at `path`, or of the nearest parent that was written."""
        while path not in self.values:
            path = path[:-1]
        return self.values[path]

    def locate_key(self, path: Path) -> Location:
        """The location of the last key of `path`."""
        return self.keys.get(path) or self.locate(path)
