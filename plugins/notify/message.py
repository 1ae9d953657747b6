"""What is to be said, and how it is cut to a channel's measure."""

from __future__ import annotations

import json

from protocol import Failure, Misconfigured
from template import render, scope_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from protocol import Request

LONGEST_TITLE = 200
LONGEST_TEXT = 32_000
LONGEST_URL = 1000
MOST_PARTS = 5
PRIORITIES = {"min": 1, "low": 2, "default": 3, "high": 4, "urgent": 5}
ADDED = ("ductile_plugin", "ductile_pipeline", "ductile_step_id")
CUT = "\n… (shortened)"


class Message:
    """One notification. `id` is the event's: a retry of the same event is the same message."""

    def __init__(
        self, id: str, type: str, title: str, text: str, priority: int = 3, url: str | None = None
    ) -> None:
        self.id, self.type, self.title, self.text = id, type, title, text
        self.priority, self.url = priority, url

    def document(self) -> dict[str, Any]:
        return dict(vars(self))

    @property
    def whole_text(self) -> str:
        """The text with the link under it, for channels that have no place of its own."""
        return f"{self.text}\n{self.url}" if self.url else self.text

    @property
    def all(self) -> str:
        """Title and text, for channels that know no titles."""
        return f"{self.title}\n{self.whole_text}".strip()


def compose(request: Request) -> Message:
    """The message of an event, by the config's templates or the event's own words.

    Raises `Failure` where it cannot be made: trying again would change nothing.
    """
    rule = rule_of(request.config, request.event.get("type") or "")
    scope = scope_of(request)
    payload = request.payload if isinstance(request.payload, dict) else {}
    title, text, url = rule.get("title"), rule.get("text"), payload.get("url")
    said_title = render(title, scope) if title is not None else _own_title(request, payload)
    said = render(text, scope) if text is not None else _own_text(request, payload)
    if any(not c.isprintable() for c in said_title):
        raise Failure("the title must be one line of printable text", retry=False)
    if not said.strip():
        raise Failure("there is nothing to say: the text is empty", retry=False)
    return Message(
        request.event.get("event_id") or request.job_id,
        request.event.get("type") or "",
        shortened(said_title.strip(), LONGEST_TITLE, "…"),
        shortened(said.strip(), LONGEST_TEXT, CUT),
        _priority(payload.get("priority", rule.get("priority", 3))),
        url if isinstance(url, str) and _is_link(url) else None,
    )


def rule_of(config: dict[str, Any], type: str) -> dict[str, Any]:
    """What the config says for events of this type: its own rule over the general one."""
    events = config.get("events") or {}
    if not isinstance(events, dict) or not all(isinstance(one, dict) for one in events.values()):
        raise Misconfigured("events must map event types to title, text, channels or priority")
    general = {key: config[key] for key in ("title", "text", "priority") if key in config}
    rule = {**general, **events.get(type, {})}
    for key in ("title", "text"):
        if not isinstance(rule.get(key), str | None):
            raise Misconfigured(f"{key} must be text")
    return rule


def _own_title(request: Request, payload: dict[str, Any]) -> str:
    for key in ("title", "subject"):
        if isinstance(payload.get(key), str) and payload[key].strip():
            return str(payload[key])
    return str(request.event.get("type") or "notification")


def _own_text(request: Request, payload: dict[str, Any]) -> str:
    for key in ("text", "message"):
        if isinstance(payload.get(key), str) and payload[key].strip():
            return str(payload[key])
    plain: Any = request.payload
    if isinstance(plain, dict):
        plain = {key: value for key, value in plain.items() if key not in ADDED}
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False, indent=1)


def _priority(value: Any) -> int:
    found: Any = PRIORITIES.get(value) if isinstance(value, str) else value
    if type(found) is not int or not 1 <= found <= 5:
        known = ", ".join(PRIORITIES)
        raise Failure(f"priority must be 1 to 5, or one of {known}", retry=False)
    return found


def _is_link(url: str) -> bool:
    good = url.startswith(("https://", "http://")) and len(url) <= LONGEST_URL
    return good and url.isprintable() and " " not in url


def shortened(text: str, longest: int, mark: str) -> str:
    return text if len(text) <= longest else text[: longest - len(mark)] + mark


def split(text: str, limit: int, weigh: Callable[[str], int]) -> list[str]:
    """`text` in parts that each weigh no more than `limit`, cut at lines or spaces if possible.

    At most `MOST_PARTS`; the last one says where more is left out.
    """
    parts: list[str] = []
    rest = text
    while rest:
        last = len(parts) == MOST_PARTS - 1
        room = limit - weigh(CUT) if last else limit
        if weigh(rest) <= limit:
            return [*parts, rest]
        cut = _longest_fit(rest, room, weigh)
        if last:
            return [*parts, rest[:cut] + CUT]
        soft = max(rest.rfind("\n", cut // 2, cut), rest.rfind(" ", cut // 2, cut))
        cut = soft + 1 if soft >= 0 else cut
        if part := rest[:cut].strip():
            parts.append(part)
        rest = rest[cut:].lstrip("\n")
    return parts


def _longest_fit(text: str, limit: int, weigh: Callable[[str], int]) -> int:
    """How many characters from the start weigh no more than `limit`; at least one."""
    low, high = 1, min(len(text), limit)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if weigh(text[:middle]) <= limit else (low, middle - 1)
    return low


def utf16(text: str) -> int:
    """The length as Discord and Telegram count it, or more."""
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


def as_json(text: str) -> int:
    """The length inside a JSON document; never less than in UTF-8."""
    return len(json.dumps(text)) - 2
