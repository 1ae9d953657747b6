"""What stands after the `?`: numbers, moments, words and flags, or a refusal that says which."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from starlette.requests import Request

from ductile.clock import from_text, to_text
from ductile.errors import UsageError

LARGEST_PAGE = 1000
PAGE = 50
LARGEST_NUMBER = 2**62
_WHOLE = re.compile(r"[0-9]{1,19}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")


def whole(
    request: Request, name: str, default: int = 0, *, least: int = 0, most: int = LARGEST_NUMBER
) -> int:
    """A whole number from `least` to `most`."""
    text = request.query_params.get(name)
    if text is None:
        return default
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


def limit_of(request: Request) -> int:
    """How many rows a page may have."""
    return whole(request, "limit", PAGE, least=1, most=LARGEST_PAGE)


def seconds(request: Request, name: str, most: float) -> float:
    """A number of seconds from 0; more than `most` is `most`."""
    text = request.query_params.get(name, "0")
    if not _SECONDS.fullmatch(text):
        raise UsageError(f"{name} must be a number of seconds from 0")
    return min(float(text), most)


def flag(request: Request, name: str) -> bool:
    """`true` or, as without it, `false`."""
    return word(request, name, ("true", "false")) == "true"


def word(request: Request, name: str, allowed: Iterable[str]) -> str | None:
    """One of the words that are allowed."""
    text = request.query_params.get(name)
    if text is not None and text not in (words := [str(word) for word in allowed]):
        raise UsageError(f"{name} must be one of {', '.join(words)}")
    return text


def moment(request: Request, name: str) -> str | None:
    """A time, as the ledger writes it."""
    text = request.query_params.get(name)
    try:
        return None if text is None else to_text(from_text(text))
    except (ValueError, OverflowError):
        raise UsageError(f"{name} must be a time (ISO 8601)") from None


def since(request: Request, default: datetime) -> datetime:
    """The same of `since`, as a time."""
    text = moment(request, "since")
    return default if text is None else from_text(text)
