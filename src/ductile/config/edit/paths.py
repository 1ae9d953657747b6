"""How people name a place in the configuration.

plugins.echo.retry.max_attempts    keys, parted by dots
plugins[my.plugin].enabled         brackets hold a key that has dots of its own
plugins.echo.schedules[0].every    an item of a list by its number; [+] is one more
pipelines.nightly.timeout          or by its name, id or path
plugin:echo.enabled                an entity, by its kind and name
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
"""What is at a place that nobody wrote."""

_PART = re.compile(r"\[([^\[\]]+)\]|([^.\[\]]+)")
_ENTITY = re.compile(rf"({'|'.join(ENTITIES)}):")
_SYNONYMS: Mapping[str, Path] = {
    "plugins_dir": ("plugin_roots", 0),
    "database": ("state",),
    "log_level": ("service", "log_level"),
}


class Part(NamedTuple):
    text: str
    whole: bool
    """Whether it stood in brackets, where a dot is a dot."""


def resolve(text: str, document: Json) -> Path:
    """The path that `text` means in `document`; its end need not exist yet.

    `UsageError` where it is no path, `NotFound` where a list has no such item.
    """
    path: Path = ()
    here: Json = document
    parts = _parsed(text)
    while parts:
        parts = _without_synonyms(path, here, parts)
        key, used = _step(path, here, parts)
        path = (*path, key)
        here = at(document, path)
        parts = parts[used:]
    return path


def at(document: Json, path: Path) -> Json:
    """What stands at `path`, or `MISSING`."""
    for part in path:
        try:
            document = document[part]
        except (LookupError, TypeError):
            return MISSING
    return document


def placed(document: Json, path: Path, value: Json) -> Json:
    """`document` with `value` at `path`; what lies between is made."""
    if not path:
        return value
    head, rest = path[0], path[1:]
    if isinstance(head, int):
        items = list(document) if isinstance(document, list) else []
        inner = items[head] if head < len(items) else MISSING
        return [*items[:head], placed(inner, rest, value), *items[head + 1 :]]
    table = dict(document) if isinstance(document, dict) else {}
    return {**table, head: placed(table.get(head, MISSING), rest, value)}


def _parsed(text: str) -> list[Part]:
    entity = _ENTITY.match(text)
    parts = [Part(str(part), True) for part in ENTITIES[entity[1]]] if entity else []
    position = entity.end() if entity else 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None:
            raise UsageError(
                f"{text!r} is no path; it must be like plugins.echo.retry or routes[0]"
            )
        parts.append(Part(match[1] or match[2], match[1] is not None))
        position = match.end()
        if text[position : position + 1] == "." and position + 1 < len(text):
            position += 1
    if not parts or (entity and entity.end() == len(text)):
        raise UsageError("an empty path; name a key, such as service.log_level or plugin:echo")
    return parts


def _without_synonyms(path: Path, here: Json, parts: list[Part]) -> list[Part]:
    """Both shapes that a file may have lead to the one that the schema knows."""
    first = parts[0].text
    meant: Path | None = None
    if not path:
        meant = _SYNONYMS.get(first)
    elif len(path) == 2 and path[0] == "plugins" and first == "schedule":
        meant = ("schedules", 0)
        entries = at(here, meant[:1])
        if isinstance(entries, list) and len(entries) > 1:
            listed = ", ".join(f"schedules[{index}]" for index in range(len(entries)))
            raise UsageError(f"{dotted(path)} has several schedules; choose one: {listed}")
    elif len(path) == 4 and path[0] == "plugins" and first == "preferred_window":
        meant = ("only_between",)
    elif path == ("webhooks",) and parts[0].whole and first != "endpoints":
        return [Part("endpoints", True), *parts]
    return parts if meant is None else [*(Part(str(p), True) for p in meant), *parts[1:]]


def _step(path: Path, here: Json, parts: list[Part]) -> tuple[str | int, int]:
    """The next key or index, and how many parts it took."""
    if isinstance(here, dict):
        joined = next((found for found in _joined(parts) if found[0] in here), None)
        return joined or (parts[0].text, 1)
    if isinstance(here, list):
        return _index(path, here, parts)
    if here is not MISSING and here is not None:
        raise UsageError(f"{dotted(path)} is a single value; there is nothing below it")
    text = parts[0].text
    if not parts[0].whole or not (text == "+" or text.isdecimal()):
        return text, 1
    if text not in ("0", "+"):
        raise NotFound(f"{dotted(path)} is empty; its first item is {dotted(path)}[0]")
    return 0, 1


def _index(path: Path, items: Sequence[Json], parts: list[Part]) -> tuple[int, int]:
    text = parts[0].text
    if text == "+":
        return len(items), 1
    if text.isdecimal():
        if int(text) > len(items):
            count = f"{len(items)} item{'' if len(items) == 1 else 's'}"
            raise NotFound(f"{dotted(path)} has {count}; the first is {dotted(path)}[0]")
        return int(text), 1
    for name, used in _joined(parts):
        found = [index for index, item in enumerate(items) if name in set(_names(item))]
        if len(found) > 1:
            listed = ", ".join(f"{dotted(path)}[{index}]" for index in found)
            raise UsageError(f"several items of {dotted(path)} are called {name!r}: {listed}")
        if found:
            return found[0], used
    known = [next(_names(item), "") for item in items]
    hint = did_you_mean(text, known) or f"; there are: {', '.join(known) or 'none'}"
    raise NotFound(f"{dotted(path)} has no item {text!r}{hint}")


def _joined(parts: list[Part]) -> Iterator[tuple[str, int]]:
    """What the first parts may spell together, the longest first: names may hold dots."""
    longest = next((n for n, part in enumerate(parts) if part.whole), len(parts)) or 1
    for count in range(longest, 0, -1):
        yield ".".join(part.text for part in parts[:count]), count


def _names(item: Json) -> Iterator[str]:
    """What an item of a list may be called, its usual name first."""
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
