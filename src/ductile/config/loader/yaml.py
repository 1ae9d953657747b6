"""Parse YAML 1.2 text into a tree of nodes, or report every problem in it.

The tree is built from libyaml's events and not by its composer, which recurses in C and crashes
on deep nesting. Depth and size, aliases expanded, are limited while the tree is built.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import field, replace

import yaml
from yaml._yaml import CParser, Mark

from ductile._fast_dataclass import dataclass
from ductile.config.loader.nodes import (
    NULLS,
    Location,
    MappingEntry,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
)
from ductile.errors import Problem
from ductile.model import Json

MAX_DEPTH = 100
MAX_NODES = 200_000
"""Counted with aliases expanded, so ten lines of aliases cannot become gigabytes."""

_CORE = "tag:yaml.org,2002:"
_BOOL = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_NOT_FINITE = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_LARGEST = 2**63
_MERGE = "<<"
_NOT_YAML = "the file is not valid YAML"
_NOT_A_KEY = "a list or mapping cannot be a key"
_UNQUOTED_TEMPLATE = re.compile(
    r"\s*(?:-\s+)?(?P<key>[\w.-]+:)\s+(?P<value>[^\"'|>#\U00100000-\U0010ffff]*"
    r"\{\s*(?:payload|context|config)\.[^\"'#\U00100000-\U0010ffff]*?)\s*"
)
"""A line whose value is a template, and has no placeholder of a variable in it."""


class NotJson(ValueError):
    """A YAML number that JSON cannot represent, so no plugin can receive it."""


def resolve(text: str) -> Json:
    """The value of a plain scalar in the core schema of YAML 1.2: `on`, `yes` and `no` are text.

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
        raise NotJson("is an integer beyond 64 bits")
    if _FLOAT.match(text):
        value = float(text)
        if math.isfinite(value):
            return value
        raise NotJson("is too large for a floating-point number")
    if _NOT_FINITE.match(text):
        raise NotJson("is not a finite number")
    return text


def type_of(scalar: ScalarNode, text: str) -> Json:
    """The value of `scalar` if its text is `text`; raises `NotJson` or `ValueError`."""
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
        raise ValueError(f"the value does not match its tag !!{kind}")
    return float(value) if kind == "float" else value


def compose(text: str, file: str) -> tuple[Node | None, list[Problem]]:
    """The document in `text`, None if it is empty, and the problems in it.

    After a syntax error the tree is None, so half a document is never used as a whole one.
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
            reason = "found a tab; indent with spaces"
        location = _location(file, mark)
        builder.problems.append(location.problem(f"{_NOT_YAML}: {reason}"))
        return None, [_hint_at_template(problem, text) for problem in builder.problems]
    except yaml.reader.ReaderError as error:
        # libyaml counts bytes here, while its marks count characters.
        before = text.encode()[: error.position].decode(errors="ignore")
        location = locate_character(text, file, len(before))
        builder.problems.append(
            location.problem(
                "YAML does not allow this character; remove it", found=f"U+{error.character:04X}"
            )
        )
        return None, builder.problems
    if not builder.broken:
        return builder.root, builder.problems
    return None, [_hint_at_template(problem, text) for problem in builder.problems]


def _hint_at_template(problem: Problem, text: str) -> Problem:
    """The same problem, with the corrected line if it is about a template without quotes."""
    lines = text.split("\n")
    line = lines[problem.line - 1] if problem.line and problem.line <= len(lines) else ""
    match = _UNQUOTED_TEMPLATE.fullmatch(line)
    if match is None or not problem.message.startswith((_NOT_YAML, _NOT_A_KEY)):
        return problem
    from ductile.core.pipelines.templates import correct_template

    value = json.dumps(correct_template(match["value"]), ensure_ascii=False)
    hint = f"a template needs quotes; write: {match['key']} {value}"
    return replace(problem, message=f"{problem.message}; {hint}")


def locate_character(text: str, file: str, index: int) -> Location:
    """The location of the character at `index`."""
    before = text[:index]
    return Location(file, before.count("\n") + 1, index - before.rfind("\n"))


def _location(file: str, mark: Mark | yaml.Mark | None) -> Location:
    return Location(file, mark.line + 1, mark.column + 1) if mark else Location(file, 1, 1)


@dataclass(slots=True)
class _Built:
    """A finished node with its size and height, counted with aliases expanded."""

    node: Node
    size: int = 1
    height: int = 0


@dataclass(slots=True)
class _OpenCollection:
    """A mapping or sequence whose end has not been parsed yet."""

    location: Location
    anchor: str | None
    mapping: bool
    key: tuple[str | None, Location] | None = None
    """The key whose value is next; its text is None for the merge key `<<`."""
    items: list[Node] = field(default_factory=list)
    entries: dict[str, MappingEntry] = field(default_factory=dict)
    merged: list[MappingNode] = field(default_factory=list)
    size: int = 1
    height: int = 0

    @property
    def step(self) -> str | int | None:
        """The key or index of the next value; None if a key is next."""
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
        self._frames: list[_OpenCollection] = []
        self._anchors: dict[str, _Built | None] = {}
        self._documents = 0
        self._total = 0

    def take(self, event: yaml.Event) -> bool:
        """Add one event; False if parsing must stop."""
        location = _location(self.file, event.start_mark)
        match event:
            case yaml.ScalarEvent():
                self._check_tag(event.tag, location, ("str", "int", "float", "bool", "null"))
                scalar = ScalarNode(event.value, location, event.style or "", event.tag)
                return self._add(_Built(scalar), event.anchor)
            case yaml.AliasEvent():
                return self._alias(event.anchor or "", location)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                return self._open(event, location)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                return self._close()
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    return self._stop(
                        location, "the file has a second YAML document; a file may have only one"
                    )
            case yaml.StreamEndEvent():
                return False
        return True

    def _stop(self, location: Location, message: str, allowed: str | None = None) -> bool:
        self.problems.append(location.problem(message, allowed=allowed))
        self.broken = True
        return False

    def _check_tag(self, tag: str | None, location: Location, known: tuple[str, ...]) -> None:
        if tag is not None and tag != "!" and tag.removeprefix(_CORE) not in known:
            self.problems.append(
                location.problem(
                    "unknown YAML tag",
                    found=tag.replace(_CORE, "!!"),
                    allowed=" ".join(f"!!{name}" for name in known),
                )
            )
            self.broken = True

    def _report(self, location: Location, message: str, *, found: str, allowed: str) -> None:
        """Report a problem of the key that is being parsed; the rest of the tree stays usable."""
        steps = (frame.step for frame in self._frames)
        path = tuple(step for step in steps if step is not None)
        self.problems.append(location.problem(message, path=path, found=found, allowed=allowed))

    def _open(self, event: yaml.CollectionStartEvent, location: Location) -> bool:
        mapping = isinstance(event, yaml.MappingStartEvent)
        self._check_tag(event.tag, location, ("map",) if mapping else ("seq",))
        if len(self._frames) == MAX_DEPTH:
            return self._stop(location, "nested too deeply", f"at most {MAX_DEPTH} levels")
        if event.anchor:
            self._anchors[event.anchor] = None
        self._frames.append(_OpenCollection(location, event.anchor, mapping))
        return True

    def _close(self) -> bool:
        frame = self._frames.pop()
        node: Node
        if frame.mapping:
            inherited = {k: v for table in reversed(frame.merged) for k, v in table.items.items()}
            node = MappingNode({**inherited, **frame.entries}, frame.location)
        else:
            node = SequenceNode(tuple(frame.items), frame.location)
        return self._add(_Built(node, frame.size, frame.height + 1), frame.anchor)

    def _alias(self, anchor: str, location: Location) -> bool:
        if anchor not in self._anchors:
            return self._stop(location, f"the alias *{anchor} has no anchor &{anchor} before it")
        target = self._anchors[anchor]
        if target is None:
            return self._stop(location, f"the alias *{anchor} is inside its own anchor")
        if len(self._frames) + target.height > MAX_DEPTH:
            return self._stop(
                location, "nested too deeply by aliases", f"at most {MAX_DEPTH} levels"
            )
        node = target.node
        if isinstance(node, ScalarNode) and self._expects_key():
            node = ScalarNode(node.text, location, node.style, node.tag)
        return self._add(_Built(node, target.size, target.height), None, location)

    def _expects_key(self) -> bool:
        return bool(self._frames) and self._frames[-1].mapping and self._frames[-1].key is None

    def _add(self, built: _Built, anchor: str | None, alias: Location | None = None) -> bool:
        if anchor:
            self._anchors[anchor] = built
        self._total += built.size if alias else 1
        if self._total > MAX_NODES:
            location = alias or built.node.location
            return self._stop(
                location, "too many values after expanding aliases", f"at most {MAX_NODES}"
            )
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

    def _take_key(self, frame: _OpenCollection, node: Node) -> bool:
        if not isinstance(node, ScalarNode):
            return self._stop(node.location, f"{_NOT_A_KEY}; write a plain key")
        if node.text == _MERGE and not node.style:
            frame.key = (None, node.location)
            return True
        frame.key = (node.text, node.location)
        if first := frame.entries.get(node.text):
            message = f"the key {node.text!r} is already set in line {first.key.line}; remove one"
            self._report(
                node.location, message, found=f"{node.text!r} again", allowed="each key once"
            )
        return True

    def _take_value(self, frame: _OpenCollection, node: Node, alias: Location | None) -> None:
        assert frame.key is not None
        text, location = frame.key
        if text is None:
            self._merge(frame, node, alias or location)
        else:
            frame.entries.setdefault(text, MappingEntry(location, node))
        frame.key = None

    def _merge(self, frame: _OpenCollection, node: Node, location: Location) -> None:
        for source in node.items if isinstance(node, SequenceNode) else (node,):
            if isinstance(source, MappingNode):
                frame.merged.append(source)
            else:
                found = "text" if isinstance(source, ScalarNode) else "a list of lists"
                allowed = "a mapping or a list of them"
                self._report(location, "`<<` cannot merge this value", found=found, allowed=allowed)
