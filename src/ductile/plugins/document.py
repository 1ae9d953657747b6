"""A small YAML file as plain JSON values: YAML 1.2, bounded in size, depth and aliases."""

from __future__ import annotations

import math
import re
from collections.abc import Collection

import yaml

from ductile.model import Json
from ductile.record import dataclass

MAX_BYTES = 1024 * 1024
MAX_LEVELS = 50
MAX_NODES = 50_000

_TAG = "tag:yaml.org,2002:"


class DocumentError(ValueError):
    """The text is no document that can be used; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Document:
    root: dict[str, Json]
    repeated: tuple[tuple[str | int, ...], ...]
    """Paths of the keys that a mapping held already; the first of each is in `root`."""


class _Loader(yaml.CSafeLoader):
    """The core schema of YAML 1.2, in which `on`, `yes` and dates are text.

    `.inf` and `.nan` stay text as well: JSON has no word for them.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}


for _name, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?",
        list("-+.0123456789"),
    ),
):
    _Loader.add_implicit_resolver(_TAG + _name, re.compile(rf"^(?:{_pattern})$"), _first)


def read_document(data: bytes, *, as_written: Collection[str] = ()) -> Document:
    """Read one mapping; scalars of the top-level keys `as_written` stay text (`1.10`).

    Raises `DocumentError`.
    """
    if len(data) > MAX_BYTES:
        raise DocumentError(f"it is larger than {MAX_BYTES // 1024} KiB")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"it is not UTF-8 (byte {error.start})") from None
    try:
        _check_depth(text)
        node = _compose(text)
    except yaml.YAMLError as error:
        raise DocumentError(f"it is not YAML: {_one_line(error)}") from None
    if not isinstance(node, yaml.MappingNode):
        raise DocumentError("it must be a mapping of keys to values")
    reader = _Reader(as_written)
    return Document(reader.mapping(node, ()), tuple(reader.repeated))


def _check_depth(text: str) -> None:
    """Before composing, for libyaml's composer overflows the C stack on deep nesting."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_LEVELS:
                raise DocumentError(f"it is nested more than {MAX_LEVELS} levels deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _compose(text: str) -> yaml.Node | None:
    loader = _Loader(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).replace('in "<unicode string>", ', "at ").split())


class _Reader:
    """Turns nodes into values. Aliased nodes are read again each time, against one budget."""

    def __init__(self, as_written: Collection[str]) -> None:
        self.as_written = as_written
        self.repeated: list[tuple[str | int, ...]] = []
        self.nodes = 0

    def mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, Json]:
        values: dict[str, Json] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise DocumentError(f"a key is no text{_place(key_node)}")
            key = key_node.value
            if key in values:
                self.repeated.append((*path, key))
            elif not path and key in self.as_written and _is_number(value_node):
                values[key] = value_node.value
            else:
                values[key] = self.value(value_node, (*path, key))
        return values

    def value(self, node: yaml.Node, path: tuple[str | int, ...]) -> Json:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(path) > MAX_LEVELS:
            raise DocumentError("it holds too much, once its aliases are expanded")
        if isinstance(node, yaml.ScalarNode):
            return _scalar(node)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(item, (*path, index)) for index, item in enumerate(node.value)]
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self.mapping(node, path)
        raise DocumentError(f"the tag {node.tag} is not known{_place(node)}")


def _is_number(node: yaml.Node) -> bool:
    return node.tag in (_TAG + "int", _TAG + "float")


def _scalar(node: yaml.ScalarNode) -> Json:
    text = node.value
    try:
        match node.tag.removeprefix(_TAG):
            case "str":
                return text
            case "null":
                return None
            case "bool":
                return {"true": True, "false": False}[text.lower()]
            case "int":
                number = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
                if -(2**63) <= number < 2**63:
                    return number
            case "float":
                real = float(text)
                if math.isfinite(real):
                    return real
    except (ValueError, KeyError):
        pass
    raise DocumentError(f"{text[:40]!r} cannot be read as {node.tag}{_place(node)}")


def _place(node: yaml.Node) -> str:
    mark = node.start_mark
    return f" (line {mark.line + 1}, column {mark.column + 1})"
