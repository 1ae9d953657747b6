"""YAML 1.2 text to a tree of nodes, or every problem in it.

The tree is built from libyaml's events, not by its composer, which recurses in C and dies on
deep nesting. Depth, size and what aliases expand to are bounded while the tree grows.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import yaml
from yaml._yaml import CParser, Mark

from ductile.config.loader.nodes import NULLS, Entry, Listing, Node, Place, Scalar, Table
from ductile.errors import Problem
from ductile.model import Json

MAX_DEPTH = 100
MAX_NODES = 200_000
"""Counted after aliases are expanded, so ten lines of aliases cannot become gigabytes."""

_CORE = "tag:yaml.org,2002:"
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_LARGEST = 2**63
_MERGE = "<<"


class NotJson(ValueError):
    """A YAML number that JSON, and so no plugin, can carry."""


def resolve(text: str) -> Json:
    """The value of a plain scalar by the core schema of YAML 1.2: `on`, `yes` and `no` are text.

    Raises `NotJson` for infinities, NaN and integers beyond 64 bits.
    """
    if text in NULLS:
        return None
    if text in _BOOL:
        return _BOOL[text]
    first = text[0]
    if not (first.isdigit() or first in "+-."):
        return text
    if _INT.match(text):
        if len(text) <= 64:
            number = int(text, 0) if text[:2] in ("0x", "0o") else int(text)
            if -_LARGEST <= number < 2 * _LARGEST:
                return number
        raise NotJson("an integer beyond 64 bits")
    if _FLOAT.match(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise NotJson("a number too large for a float")
    if _NOT_FINITE.match(text):
        raise NotJson("not a finite number")
    return text


def type_of(scalar: Scalar, text: str) -> Json:
    """The value of `scalar` once its text is `text`; raises `NotJson` or `ValueError`."""
    if scalar.tag is None:
        return text if scalar.style else resolve(text)
    kind = scalar.tag.removeprefix(_CORE)
    if kind in ("!", "str"):
        return text
    value = resolve(text)
    fits = {
        "null": value is None,
        "bool": isinstance(value, bool),
        "int": isinstance(value, int) and not isinstance(value, bool),
        "float": isinstance(value, int | float) and not isinstance(value, bool),
    }
    if not fits[kind]:
        raise ValueError(f"not a value of the tag !!{kind}")
    return float(value) if kind == "float" else value


def compose(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The one document in `text` (None where it is empty) and what is wrong with it.

    After a syntax error the tree is None: half a document must not be taken for a whole one.
    """
    builder = _Builder(file)
    try:
        parser = CParser(text)
        while (event := parser.get_event()) is not None:
            if not builder.take(event):
                break
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        if mark is not None and text.startswith("\t", mark.index):
            reason = "a tab; indent with spaces"
        builder.problems.append(_place(file, mark).problem(f"not valid YAML: {reason}"))
        return None, builder.problems
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes here, while its marks count characters.
        before = text.encode()[: error.position].decode(errors="ignore")
        place = position(text, file, len(before))
        builder.problems.append(
            place.problem("a character that YAML does not allow", found=f"U+{error.character:04X}")
        )
        return None, builder.problems
    return (None if builder.broken else builder.root), builder.problems


def position(text: str, file: str, index: int) -> Place:
    """The place of the character at `index`."""
    before = text[:index]
    return Place(file, before.count("\n") + 1, index - before.rfind("\n"))


def _place(file: str, mark: Mark | yaml.Mark | None) -> Place:
    return Place(file, mark.line + 1, mark.column + 1) if mark else Place(file, 1, 1)


@dataclass(slots=True)
class _Built:
    """A finished node with its size and height, aliases expanded."""

    node: Node
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class _Frame:
    """A collection whose end has not been seen."""

    place: Place
    anchor: str | None
    mapping: bool
    key: tuple[str | None, Place] | None = None
    """The key whose value comes next; its text is None for the merge key `<<`."""
    items: list[Node] = field(default_factory=list)
    entries: dict[str, Entry] = field(default_factory=dict)
    merged: list[Table] = field(default_factory=list)
    size: int = 1
    height: int = 0

    @property
    def step(self) -> str | int | None:
        """The key or the index that comes next; None where a key does."""
        if not self.mapping:
            return len(self.items)
        if self.key is None:
            return None
        text, _ = self.key
        return _MERGE if text is None else text


class _Builder:
    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.broken = False
        self.problems: list[Problem] = []
        self._frames: list[_Frame] = []
        self._anchors: dict[str, _Built | None] = {}
        self._documents = 0
        self._total = 0

    def take(self, event: yaml.Event) -> bool:
        """Add one event; False where reading on makes no sense."""
        place = _place(self.file, event.start_mark)
        match event:
            case yaml.ScalarEvent():
                self._check_tag(event.tag, place, ("str", "int", "float", "bool", "null"))
                scalar = Scalar(event.value, place, event.style or "", event.tag)
                return self._add(_Built(scalar), event.anchor)
            case yaml.AliasEvent():
                return self._alias(event.anchor or "", place)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                return self._open(event, place)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                return self._close()
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    return self._stop(place, "a second YAML document; one file holds one")
            case yaml.StreamEndEvent():
                return False
        return True

    def _stop(self, place: Place, message: str, allowed: str | None = None) -> bool:
        self.problems.append(place.problem(message, allowed=allowed))
        self.broken = True
        return False

    def _check_tag(self, tag: str | None, place: Place, known: tuple[str, ...]) -> None:
        if tag is not None and tag != "!" and tag.removeprefix(_CORE) not in known:
            self.problems.append(
                place.problem(
                    "an unknown YAML tag",
                    found=tag.replace(_CORE, "!!"),
                    allowed=" ".join(f"!!{name}" for name in known),
                )
            )
            self.broken = True

    def _flaw(self, place: Place, message: str, *, found: str, allowed: str) -> None:
        """A problem of the key that is being read, and of nothing else."""
        steps = (frame.step for frame in self._frames)
        path = tuple(step for step in steps if step is not None)
        self.problems.append(place.problem(message, path=path, found=found, allowed=allowed))

    def _open(self, event: yaml.CollectionStartEvent, place: Place) -> bool:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event.tag, place, ("map",) if mapping else ("seq",))
        if len(self._frames) == MAX_DEPTH:
            return self._stop(place, "nested too deeply", f"{MAX_DEPTH} levels")
        if event.anchor:
            self._anchors[event.anchor] = None
        self._frames.append(_Frame(place, event.anchor, mapping))
        return True

    def _close(self) -> bool:
        frame = self._frames.pop()
        node: Node
        if frame.mapping:
            inherited = {k: v for table in reversed(frame.merged) for k, v in table.items.items()}
            node = Table({**inherited, **frame.entries}, frame.place)
        else:
            node = Listing(tuple(frame.items), frame.place)
        return self._add(_Built(node, frame.size, frame.height + 1), frame.anchor)

    def _alias(self, anchor: str, place: Place) -> bool:
        if anchor not in self._anchors:
            return self._stop(place, f"the alias *{anchor} has no anchor before it")
        target = self._anchors[anchor]
        if target is None:
            return self._stop(place, f"the alias *{anchor} stands inside what it names")
        if len(self._frames) + target.height > MAX_DEPTH:
            return self._stop(place, "nested too deeply by aliases", f"{MAX_DEPTH} levels")
        node = target.node
        if isinstance(node, Scalar) and self._expects_key():
            node = Scalar(node.text, place, node.style, node.tag)
        return self._add(_Built(node, target.size, target.height), None, place)

    def _expects_key(self) -> bool:
        return bool(self._frames) and self._frames[-1].mapping and self._frames[-1].key is None

    def _add(self, built: _Built, anchor: str | None, alias: Place | None = None) -> bool:
        if anchor:
            self._anchors[anchor] = built
        self._total += built.size if alias else 1
        if self._total > MAX_NODES:
            place = alias or built.node.place
            return self._stop(place, "too many values, aliases expanded", f"{MAX_NODES}")
        if not self._frames:
            self.root = built.node
            return True
        frame = self._frames[-1]
        frame.size += built.size
        frame.height = max(frame.height, built.height)
        if not frame.mapping:
            frame.items.append(built.node)
        elif frame.key is None:
            return self._take_key(frame, built.node)
        else:
            self._take_value(frame, built.node, alias)
        return True

    def _take_key(self, frame: _Frame, node: Node) -> bool:
        if not isinstance(node, Scalar):
            return self._stop(node.place, "a list or mapping cannot be a key")
        if node.text == _MERGE and not node.style:
            frame.key = (None, node.place)
            return True
        frame.key = (node.text, node.place)
        if first := frame.entries.get(node.text):
            message = f"the key {node.text!r} is already set in line {first.key.line}"
            self._flaw(node.place, message, found=f"{node.text!r} again", allowed="each key once")
        return True

    def _take_value(self, frame: _Frame, node: Node, alias: Place | None) -> None:
        assert frame.key is not None
        text, place = frame.key
        if text is None:
            self._merge(frame, node, alias or place)
        else:
            frame.entries.setdefault(text, Entry(place, node))
        frame.key = None

    def _merge(self, frame: _Frame, node: Node, place: Place) -> None:
        for source in node.items if isinstance(node, Listing) else (node,):
            if isinstance(source, Table):
                frame.merged.append(source)
            else:
                found = "text" if isinstance(source, Scalar) else "a list of lists"
                allowed = "a mapping or a list of them"
                self._flaw(place, "cannot be merged", found=found, allowed=allowed)
