"""Limits: the length of indexed text, the depth of JSON, the length of a chain of jobs.

A PostgreSQL index accepts at most 2,704 bytes per row over all its columns, and refuses longer rows
only when they are written, too late to report it to the sender. Each text is therefore limited on
input so that no sum reaches that limit. Depth is limited for the same reason: the JSON reader
accepts 1,024 levels, the writer 254.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import orjson

from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.model import MIB, Json

LONGEST_DEDUPE_KEY = 1024
LONGEST_NAME = 255
"""For names in a configuration: pipelines, schedules, peers, paths of webhooks."""
LONGEST_STEP_PATH = 1024
"""All limits are in bytes of UTF-8."""

DEEPEST = 100
"""Levels of JSON input: envelopes, requests and responses add more around it."""
DEEPEST_KEPT = 150
"""Levels of stored JSON, including what steps add; a response adds its own levels."""

PAGE_BYTES = 4 * MIB
"""Bytes of a page of a list, unless its first row alone is larger."""

LONGEST_PRIORITY = 7 * 86_400
"""Seconds."""

MAX_HOPS = 20
"""Default limit of jobs from the first of a chain to its last."""

_WIDEST = 4


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def fits(text: str, most: int) -> bool:
    return len(text) * _WIDEST <= most or size(text) <= most


def fitting(sizes: Iterable[int], most: int) -> int:
    """How many of the sizes fit into `most`; at least one."""
    return sum(total <= most or place == 0 for place, total in enumerate(accumulate(sizes)))


def dedupe_key_flaw(key: str | None) -> str | None:
    """What is wrong with the key, as text that follows its name; None if it is valid."""
    if key is None or fits(key, LONGEST_DEDUPE_KEY):
        return None
    return f"is {size(key)} bytes long; the maximum is {LONGEST_DEDUPE_KEY}"


def too_deep(value: Json, text: bytes | None = None, most: int = DEEPEST) -> bool:
    """Whether objects and lists are nested deeper than `most` levels.

    `text` is the source of the value: most texts have too few brackets to need a closer look.
    """
    if text is not None and text.count(b"{") + text.count(b"[") <= most:
        return False
    level = [value] if type(value) is dict or type(value) is list else []
    for _ in range(most):
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def document(text: str | bytes) -> Json:
    """Stored JSON as a value for display; the text itself if it cannot be parsed."""
    try:
        raw = text if isinstance(text, bytes) else text.encode()
        value = orjson.loads(raw)
    except ValueError:
        return text
    return (
        text if too_deep(value, raw, DEEPEST_KEPT) or has_integer_altered_by_parsing(raw) else value
    )
