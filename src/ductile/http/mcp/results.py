"""Results of tools: without noise, with plugin output marked, and within the limit of size."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from ductile.errors import DuctileError, UsageError

MAX_RESULT = 8000
"""Bytes of a whole result: the structured content, the same as text, and what is around them."""
ENVELOPE = 300
MAX_DIGITS = 12
MAX_TEXT, MIN_TEXT = 1200, 60
CHUNK = 2400
"""Characters of a page of text."""
UNTRUSTED = frozenset(
    {
        "agent_id",
        "capabilities",
        "cause",
        "cluster_id",
        "comment",
        "dedupe_key",
        "description",
        "detail",
        "details",
        "diagnostic",
        "drawing",
        "error",
        "error_detail",
        "event_type",
        "events",
        "first_error",
        "held_plugins",
        "input_schema",
        "last_error",
        "log",
        "log_tail",
        "logs",
        "mermaid",
        "output_schema",
        "payload",
        "progress",
        "reason",
        "response",
        "result",
        "source_identifier",
        "state",
        "stderr",
        "stdout",
        "target_session",
        "title",
        "value",
        "values",
        "waits_for",
        "why",
        "with",
    }
)
"""Keys whose values plugins, senders and authors of configurations write, or that quote them."""
PREFIX = "untrusted_"

Json = dict[str, Any]


def mark(row: Mapping[str, Any]) -> Json:
    """Return the row without null and empty members, and with untrusted keys marked.

    Below a marked key nothing is renamed: it is data of plugins and callers.
    """
    return {
        (PREFIX + key if _is_untrusted(key, member) else key): (
            member if _is_untrusted(key, member) else _mark_inside(member)
        )
        for key, member in row.items()
        if member not in (None, "", [], {})
    }


def _mark_inside(value: Any) -> Any:
    if isinstance(value, dict):
        return mark(value)
    return [_mark_inside(member) for member in value] if isinstance(value, list) else value


def _is_untrusted(key: str, member: Any) -> bool:
    # `state` is a plugin's own data, or a word of the gateway about a schedule or breaker.
    is_word = key == "state" and isinstance(member, str)
    return key in UNTRUSTED and not is_word


def pick(row: Mapping[str, Any], *keys: str) -> Json:
    return {key: row[key] for key in keys if key in row}


def size_of(value: Any) -> int:
    return len(render(value).encode())


def render(value: Any) -> str:
    """Return the result as text, for clients that do not read structured content."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def fits(value: Any) -> bool:
    text = render(value)
    return len(text.encode()) + size_of(text) + ENVELOPE <= MAX_RESULT


def shorten(value: Json) -> Json:
    """Return the value with long texts cut, shorter and shorter until it fits."""
    limit = MAX_TEXT
    while not fits(value) and limit >= MIN_TEXT:
        value = _cut(value, limit)
        limit //= 2
    return value if fits(value) else _drop(value)


def _cut(value: Any, limit: int) -> Any:
    if isinstance(value, str) and len(value) > limit:
        return f"{value[:limit]}… ({len(value) - limit} more characters)"
    if isinstance(value, dict):
        return {key: _cut(member, limit) for key, member in value.items()}
    if isinstance(value, list):
        return [_cut(member, limit) for member in value]
    return value


def _drop(value: Json) -> Json:
    """Return the value without its largest members; what is missing is named."""
    kept, left_out = dict(value), list[str]()
    while kept and not fits({**kept, "left_out": left_out}):
        largest = max(kept, key=lambda key: size_of(kept[key]))
        left_out.append(largest)
        del kept[largest]
    return {**kept, "left_out": left_out}


async def fetch_page(
    fetch: Callable[[int], Awaitable[Json]], render: Callable[[Json], Json], limit: int
) -> Json:
    """Return a page that fits: with fewer rows, and at last with shorter texts.

    `fetch` takes the number of rows, so that the cursor of the page is that of its last row.
    """
    while True:
        page = render(await fetch(limit))
        if fits(page) or limit == 1:
            return page if fits(page) else shorten(page)
        limit = max(limit // 2, 1)


def read_position(cursor: str | None) -> int:
    """Return the position that a cursor of this module names; raises `UsageError`."""
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MAX_DIGITS):
        raise UsageError("cursor must be the one of the page before", fix="call without cursor")
    return int(cursor)


def slice_rows(name: str, rows: Sequence[Json], cursor: str | None, **more: Any) -> Json:
    """Return as many rows as fit from the position of the cursor, and the next cursor."""
    start = read_position(cursor)
    shown: list[Json] = []
    for row in rows[start:]:
        row = row if fits(row) else shorten(row)
        if shown and not fits({name: [*shown, row], "cursor": "000000", **more}):
            break
        shown.append(row)
    end = start + len(shown)
    rest = {"cursor": str(end), "total": len(rows)} if end < len(rows) else {}
    return {name: shown, **rest, **more}


class ContentChanged(DuctileError):
    """The text behind a cursor is no longer that of the page before."""

    code = "content_changed"


def slice_text(
    name: str, text: str, cursor: str | None, *, version: str | None = None, **more: Any
) -> Json:
    """Return as much of an untrusted text as fits from the cursor, and the next cursor.

    A cursor is bound to what it was made for, the text or its `version`: pages of two texts would
    make one that never existed.
    """
    made_for = hashlib.blake2b((version or text).encode(errors="replace"), digest_size=6)
    position, _, known = (cursor or "").partition("-")
    if cursor is not None and known != made_for.hexdigest():
        read_position(position)
        raise ContentChanged(f"the {name} has changed since the page of this cursor was read")
    start, size = read_position(position or None), CHUNK
    while True:
        end = start + size
        following = f"{end}-{made_for.hexdigest()}"
        rest = {"cursor": following, "total": len(text)} if end < len(text) else {}
        page = {**more, PREFIX + name: text[start:end], **rest}
        if fits(page) or size < 100:
            return page
        size //= 2
