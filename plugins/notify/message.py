"""Build a message from an event, and split it to the limits of a channel."""

from __future__ import annotations

import json

from protocol import ConfigError, Failure
from template import collect_values, render

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from protocol import Request

MAX_TITLE = 200
MAX_TEXT = 32_000
MAX_URL = 1000
MAX_PARTS = 5
PRIORITIES = {"min": 1, "low": 2, "default": 3, "high": 4, "urgent": 5}
ADDED = ("ductile_plugin", "ductile_pipeline", "ductile_step_id")
CUT = "\n… (shortened)"


class Message:
    """A notification. `id` is that of the event, so a retry is the same message."""

    def __init__(
        self, id: str, type: str, title: str, text: str, priority: int = 3, url: str | None = None
    ) -> None:
        self.id, self.type, self.title, self.text = id, type, title, text
        self.priority, self.url = priority, url

    def document(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def text_with_link(self) -> str:
        """The text and the link, for channels without a field for links."""
        return f"{self.text}\n{self.url}" if self.url else self.text

    @property
    def full_text(self) -> str:
        """Title, text and link, for channels without titles."""
        return f"{self.title}\n{self.text_with_link}".strip()


def compose(request: Request) -> Message:
    """The message for an event, from configured templates or fields of the event.

    Raises `Failure` without retry if the event is not valid.
    """
    rule = get_rule(request.config, request.event.get("type") or "")
    scope = collect_values(request)
    payload = request.payload if isinstance(request.payload, dict) else {}
    title, text, url = rule.get("title"), rule.get("text"), payload.get("url")
    rendered_title = render(title, scope) if title is not None else _get_title(request, payload)
    rendered = render(text, scope) if text is not None else _get_text(request, payload)
    if any(not c.isprintable() for c in rendered_title):
        raise Failure("the title must be one line of printable text", retry=False)
    if not rendered.strip():
        raise Failure("the text is empty", retry=False)
    return Message(
        request.event.get("event_id") or request.job_id,
        request.event.get("type") or "",
        shorten(rendered_title.strip(), MAX_TITLE, "…"),
        shorten(rendered.strip(), MAX_TEXT, CUT),
        _parse_priority(payload.get("priority", rule.get("priority", 3))),
        url if isinstance(url, str) and _is_link(url) else None,
    )


def get_rule(config: dict[str, Any], type: str) -> dict[str, Any]:
    """The rule for an event type: general settings, overridden by those of the type."""
    events = config.get("events") or {}
    if not isinstance(events, dict) or not all(isinstance(one, dict) for one in events.values()):
        raise ConfigError("events must map event types to title, text, channels or priority")
    general = {key: config[key] for key in ("title", "text", "priority") if key in config}
    rule = {**general, **events.get(type, {})}
    for key in ("title", "text"):
        if not isinstance(rule.get(key), str | None):
            raise ConfigError(f"{key} must be text")
    return rule


def _get_title(request: Request, payload: dict[str, Any]) -> str:
    for key in ("title", "subject"):
        if isinstance(payload.get(key), str) and payload[key].strip():
            return str(payload[key])
    return str(request.event.get("type") or "notification")


def _get_text(request: Request, payload: dict[str, Any]) -> str:
    for key in ("text", "message"):
        if isinstance(payload.get(key), str) and payload[key].strip():
            return str(payload[key])
    plain: Any = request.payload
    if isinstance(plain, dict):
        plain = {key: value for key, value in plain.items() if key not in ADDED}
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, indent=1)


def _parse_priority(value: Any) -> int:
    found: Any = PRIORITIES.get(value) if isinstance(value, str) else value
    if type(found) is not int or not 1 <= found <= 5:
        known = ", ".join(PRIORITIES)
        raise Failure(f"priority must be from 1 to 5, or one of {known}", retry=False)
    return found


def _is_link(url: str) -> bool:
    good = url.startswith(("https://", "http://")) and len(url) <= MAX_URL
    return good and url.isprintable() and " " not in url


def shorten(text: str, longest: int, mark: str) -> str:
    return text if len(text) <= longest else text[: longest - len(mark)] + mark


def split(text: str, limit: int, measure: Callable[[str], int]) -> list[str]:
    """`text` in parts of at most `limit`, cut at lines or spaces if possible.

    `measure` returns the length of a text. There are at most `MAX_PARTS` parts; the last one says
    if more was omitted.
    """
    parts: list[str] = []
    rest = text
    while rest:
        last = len(parts) == MAX_PARTS - 1
        room = limit - measure(CUT) if last else limit
        if measure(rest) <= limit:
            return [*parts, rest]
        cut = _find_cut(rest, room, measure)
        if last:
            return [*parts, rest[:cut] + CUT]
        soft = max(rest.rfind("\n", cut // 2, cut), rest.rfind(" ", cut // 2, cut))
        cut = soft + 1 if soft >= 0 else cut
        if part := rest[:cut].strip():
            parts.append(part)
        rest = rest[cut:].lstrip("\n")
    return parts


def _find_cut(text: str, limit: int, measure: Callable[[str], int]) -> int:
    """The number of characters from the start within `limit`; at least one."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if measure(text[:middle]) <= limit else (low, middle - 1)
    return low


def count_utf16(text: str) -> int:
    """The length in UTF-16 units, as Discord and Telegram count."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def count_json(text: str) -> int:
    """The length as a JSON string; never less than in UTF-8."""
    return len(json.dumps(text)) - 2
