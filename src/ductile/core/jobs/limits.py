"""How long a text may be that rows are found by, how deep JSON may nest, how far a chain goes.

An index of PostgreSQL takes at most 2,704 bytes a row, all of its columns together, and refuses
what is longer only when it is written: long after whoever sent it could have been told. So that
no sum of them comes near, each is bounded where it enters. So is depth, for the same reason: what
reads JSON takes 1,024 levels, what writes it 254.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import orjson

from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.model import MIB, Json

LONGEST_DEDUPE_KEY = 1024
LONGEST_NAME = 255
"""Of what a configuration calls by a name: pipelines, schedules, peers, paths of webhooks."""
LONGEST_STEP_PATH = 1024
"""All in bytes of UTF-8."""

DEEPEST = 100
"""Levels of JSON that comes from outside: envelopes, requests and answers put more around it."""
DEEPEST_KEPT = 150
"""Levels of what is kept, with all that steps have put around it; an answer still adds its own."""

PAGE_BYTES = 4 * MIB
"""Of what a page of a list holds, unless its first row alone holds more."""

MAX_HOPS = 20
"""From the first job of a chain to its last, where the configuration says nothing else."""

_WIDEST = 4


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def fits(text: str, most: int) -> bool:
    return len(text) * _WIDEST <= most or size(text) <= most


def fitting(sizes: Iterable[int], most: int) -> int:
    """How many of them come to no more than `most`; the first always does."""
    return sum(total <= most or place == 0 for place, total in enumerate(accumulate(sizes)))


def dedupe_key_flaw(key: str | None) -> str | None:
    """What is wrong with it, to follow its name; None where nothing is."""
    if key is None or fits(key, LONGEST_DEDUPE_KEY):
        return None
    return f"is {size(key)} bytes long, it must be at most {LONGEST_DEDUPE_KEY}"


def too_deep(value: Json, text: bytes | None = None, most: int = DEEPEST) -> bool:
    """Whether it nests more than so many levels of objects and lists.

    `text` is what it was read from, or stands in: most have too few brackets to be looked at.
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
    """JSON that is kept, as it is shown: still as text where it is none, or cannot be."""
    try:
        raw = text if isinstance(text, bytes) else text.encode()
        value = orjson.loads(raw)
    except ValueError:
        return text
    return (
        text if too_deep(value, raw, DEEPEST_KEPT) or has_integer_altered_by_parsing(raw) else value
    )
