"""Paths of settings as operators write them.

plugins.echo.retry.max_attempts    keys, separated by dots
plugins[my.plugin].enabled         a key with dots, in brackets
plugins.echo.schedules[0].every    an item of a list by its index; [+] is a new item
pipelines.nightly.timeout          an item of a list by its name, id or path
plugin:echo.enabled                an entity by its kind and name
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, Path, UsageError, dotted
from ductile.model import Json

ENTITIES: Mapping[str, Path] = {
    "plugin": ("plugins",),
    "pipeline": ("pipelines",),
    "route": ("routes",),
    "webhook": ("webhooks", "endpoints"),
    "token": ("tokens",),
    "instance": ("instances",),
    "peer": ("remote_ingress", "peers"),
}
MISSING: Any = object()
"""The value at a path that does not exist."""

_PART = re.compile(r"\[([^\[\]]+)\]|([^.\[\]]+)")
_ENTITY = re.compile(rf"({'|'.join(ENTITIES)}):")
_ALIASES: Mapping[str, Path] = {
    "plugins_dir": ("plugin_roots", 0),
    "database": ("state",),
    "log_level": ("service", "log_level"),
}


LISTS: frozenset[Path] = frozenset(
    {*ENTITIES.values(), ("alerts",), ("api", "auth", "tokens")} - {ENTITIES["plugin"]}
)
"""Lists whose items have names: without the list, there is no item with a given name."""


class PathPart(NamedTuple):
    text: str
    whole: bool
    """Whether it was in brackets, so its dots are part of the key."""


def resolve_path(text: str, document: Json) -> Path:
    """The path that `text` refers to in `document`; it may be new.

    Raises `UsageError` if `text` is not a path, `NotFound` if a list has no such item.
    """
    path: Path = ()
    here: Json = document
    parts = _parse(text)
    while parts:
        parts = _resolve_aliases(path, here, parts)
        key, used = _next_step(path, here, parts)
        path = (*path, key)
        here = get_at(document, path)
        parts = parts[used:]
    return path


def get_at(document: Json, path: Path) -> Json:
    """The value at `path`, or `MISSING`."""
    for part in path:
        try:
            document = document[part]
        except (LookupError, TypeError):
            return MISSING
    return document


def set_at(document: Json, path: Path, value: Json) -> Json:
    """A copy of `document` with `value` at `path`; missing parents are created."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(document) if isinstance(document, list) else []
        inner = items[head] if head < len(items) else MISSING
        return [*items[:head], set_at(inner, rest, value), *items[head + 1 :]]
    table = dict(document) if isinstance(document, dict) else {}
    return {**table, head: set_at(table.get(head, MISSING), rest, value)}


def _parse(text: str) -> list[PathPart]:
    entity = _ENTITY.match(text)
    parts = [PathPart(str(part), True) for part in ENTITIES[entity[1]]] if entity else []
    position = entity.end() if entity else 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise UsageError(
                f"{text!r} is not a valid path; examples: plugins.echo.retry, routes[0]"
            )
        parts.append(PathPart(match[1] or match[2], match[1] is not None))
        position = match.end()
        if text[position : position + 1] == "." and position + 1 < len(text):
            position += 1
    if not parts or (entity and entity.end() == len(text)):
        raise UsageError("the path is empty; name a key, such as service.log_level or plugin:echo")
    return parts


def _resolve_aliases(path: Path, here: Json, parts: list[PathPart]) -> list[PathPart]:
    """`parts` with alternative keys replaced by the ones that the schema knows."""
    first = parts[0].text
    meant: Path | None = None
    if not path:
        meant = _ALIASES.get(first)
    elif len(path) == 2 and path[0] == "plugins" and first == "schedule":
        meant = ("schedules", 0)
        entries = get_at(here, meant[:1])
        if isinstance(entries, list) and len(entries) > 1:
            listed = ", ".join(f"schedules[{index}]" for index in range(len(entries)))
            raise UsageError(f"{dotted(path)} has several schedules; use one of {listed}")
    elif len(path) == 4 and path[0] == "plugins" and first == "preferred_window":
        meant = ("only_between",)
    elif path == ("webhooks",) and parts[0].whole and first != "endpoints":
        return [PathPart("endpoints", True), *parts]
    return parts if meant is None else [*(PathPart(str(p), True) for p in meant), *parts[1:]]


def _next_step(path: Path, here: Json, parts: list[PathPart]) -> tuple[str | int, int]:
    """The next key or index, and the number of parts it consists of."""
    if isinstance(here, dict):
        joined = next((found for found in _join_parts(parts) if found[0] in here), None)
        return joined or (parts[0].text, 1)
    if isinstance(here, list):
        return _find_index(path, here, parts)
    if here is not MISSING and here is not None:
        raise UsageError(f"{dotted(path)} is a single value and has no keys")
    text = parts[0].text
    if path in LISTS and not (text == "+" or text.isdecimal()):
        return _find_index(path, (), parts)
    if not parts[0].whole or not (text == "+" or text.isdecimal()):
        return text, 1
    if text not in ("0", "+"):
        raise NotFound(f"{dotted(path)} is empty; use {dotted(path)}[0] for a first item")
    return 0, 1


def _find_index(path: Path, items: Sequence[Json], parts: list[PathPart]) -> tuple[int, int]:
    text = parts[0].text
    if text == "+":
        return len(items), 1
    if text.isdecimal():
        if int(text) > len(items):
            count = f"{len(items)} item{'' if len(items) == 1 else 's'}"
            raise NotFound(f"{dotted(path)} has {count}; indexes start at 0")
        return int(text), 1
    for name, used in _join_parts(parts):
        found = [index for index, item in enumerate(items) if name in set(_names(item))]
        if len(found) > 1:
            listed = ", ".join(f"{dotted(path)}[{index}]" for index in found)
            raise UsageError(
                f"several items of {dotted(path)} have the name {name!r}; use one of {listed}"
            )
        if found:
            return found[0], used
    known = [next(_names(item), "") for item in items]
    hint = did_you_mean(text, known) or f"; known: {', '.join(known) or 'none'}"
    raise NotFound(f"{dotted(path)} has no item {text!r}{hint}")


def _join_parts(parts: list[PathPart]) -> Iterator[tuple[str, int]]:
    """Names that the first parts may form together, longest first; names may have dots."""
    longest = next((n for n, part in enumerate(parts) if part.whole), len(parts)) or 1
    for count in range(longest, 0, -1):
        yield ".".join(part.text for part in parts[:count]), count


def _names(item: Json) -> Iterator[str]:
    """The names by which a list item can be referred to, its usual name first."""
    if not isinstance(item, dict):
        if isinstance(item, str):
            yield item
        return
    for key in ("name", "id", "path"):
        if isinstance(item.get(key), str):
            yield item[key]
    if isinstance(item.get("path"), str):
        yield item["path"].rstrip("/").rpartition("/")[2]
    if {"from", "event_type", "to"} <= item.keys():
        for keys in (("from", "event_type", "to"), ("from", "event_type"), ("from",)):
            yield ":".join(str(item[key]) for key in keys)
