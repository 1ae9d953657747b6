"""Paths into what a plugin was given, and texts that hold such paths in braces.

`{payload.user.name}` stands for the value at that path, `{payload.user.name|nobody}` for
`nobody` where there is none. The roots are `payload`, `event` (`type source timestamp
event_id dedupe_key`) and `context`; braces around anything else are left as they are.
"""

from __future__ import annotations

import json
import re

from protocol import Failure

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from protocol import Request

ROOTS = ("payload", "event", "context")
MISSING = object()
_PLACE = re.compile(r"\{((?:payload|event|context)(?:\.[^\s{}|.]+)*)(?:\|([^{}]*))?\}")


def scope_of(request: Request) -> dict[str, Any]:
    """What paths lead into."""
    event = {key: value for key, value in request.event.items() if key != "payload"}
    return {"payload": request.payload, "event": event, "context": request.context}


def find(scope: Mapping[str, Any], path: str) -> Any:
    """The value at a path, or `MISSING`; a number is an index where there is a list."""
    value: Any = scope
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and len(key) < 10:
            value = value[int(key)] if int(key) < len(value) else MISSING
        else:
            return MISSING
    return value


def as_text(value: Any) -> str:
    """Text as it is, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def render(template: str, scope: Mapping[str, Any], write: Callable[[Any], str] = as_text) -> str:
    """`template` with its places filled in by `write`. Raises `Failure` where one is missing."""

    def fill(place: re.Match[str]) -> str:
        value = find(scope, place[1])
        if value is not MISSING:
            return write(value)
        if place[2] is None:
            raise Failure(f"the event has no {place[1]}, which a template names", retry=False)
        return write(place[2])

    return _PLACE.sub(fill, template)


def whole_place(template: str) -> tuple[str, str | None] | None:
    """Path and default, where the template is one place and nothing else."""
    place = _PLACE.fullmatch(template)
    return (place[1], place[2]) if place else None


def has_place(template: str) -> bool:
    return _PLACE.search(template) is not None
