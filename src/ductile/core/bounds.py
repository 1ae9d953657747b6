"""How long a text may be that rows are found by.

An index of PostgreSQL takes at most 2,704 bytes a row, all of its columns together, and refuses
what is longer only when it is written: long after whoever sent it could have been told. So that
no sum of them comes near, each is bounded where it enters.
"""

from __future__ import annotations

LONGEST_DEDUPE_KEY = 1024
LONGEST_NAME = 255
"""Of what a configuration calls by a name: pipelines, schedules, peers, paths of webhooks."""
LONGEST_STEP_PATH = 1024
"""All in bytes of UTF-8."""

_WIDEST = 4


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def fits(text: str, most: int) -> bool:
    return len(text) * _WIDEST <= most or size(text) <= most


def dedupe_key_flaw(key: str | None) -> str | None:
    """What is wrong with it, to follow its name; None where nothing is."""
    if key is None or fits(key, LONGEST_DEDUPE_KEY):
        return None
    return f"is {size(key)} bytes long, it must be at most {LONGEST_DEDUPE_KEY}"
