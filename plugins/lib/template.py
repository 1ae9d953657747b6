"""Templates with placeholders for values of a request.

`{payload.user.name}` is replaced by the value at that path, `{payload.user.name|unknown}` by
`unknown` if there is none. The roots are `payload`, `event` (`type source timestamp event_id
dedupe_key`) and `context`; other text in braces is left unchanged.
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
_PLACEHOLDER = re.compile(r"\{((?:payload|event|context)(?:\.[^\s{}|.]+)*)(?:\|([^{}]*))?\}")


def collect_values(request: Request) -> dict[str, Any]:
    """The values that paths refer to."""
    event = {key: value for key, value in request.event.items() if key != "payload"}
    return {"payload": request.payload, "event": event, "context": request.context}


def find(scope: Mapping[str, Any], path: str) -> Any:
    """The value at a path, or `MISSING`; in a list, a number is an index."""
    value: Any = scope
    for key in path.split("."):
        if isinstance(value, dict):
            value = value.get(key, MISSING)
        elif isinstance(value, list) and key.isascii() and key.isdecimal() and len(key) < 10:
            value = value[int(key)] if int(key) < len(value) else MISSING
        else:
            return MISSING
    return value


def to_text(value: Any) -> str:
    """Text unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def render(template: str, scope: Mapping[str, Any], write: Callable[[Any], str] = to_text) -> str:
    """`template` with its placeholders replaced. Raises `Failure` if a value is missing."""

    def fill(found: re.Match[str]) -> str:
        value = find(scope, found[1])
        if value is not MISSING:
            return write(value)
        if found[2] is None:
            raise Failure(f"the event has no {found[1]}, which a template refers to", retry=False)
        return write(found[2])

    return _PLACEHOLDER.sub(fill, template)


def parse_placeholder(template: str) -> tuple[str, str | None] | None:
    """Path and default if the template is exactly one placeholder; otherwise None."""
    found = _PLACEHOLDER.fullmatch(template)
    return (found[1], found[2]) if found else None


def has_placeholder(template: str) -> bool:
    return _PLACEHOLDER.search(template) is not None
