"""What a request asks: its headers, its body, and the values of its query and its body's fields.

All of it is bounded; what is malformed is a `UsageError` that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import orjson
from starlette.requests import Request

from ductile.clock import from_text, to_text
from ductile.config.models.units import parse_duration
from ductile.core.jobs.limits import DEEPEST, too_deep
from ductile.core.jobs.state_machine import status_named
from ductile.core.values.json_integers import has_integer_beyond_64_bits
from ductile.errors import DuctileError, UsageError
from ductile.model import JobStatus, Json, SubmittedBy

LARGEST_BODY = 1024 * 1024
BODY = "ductile.body"
"""Where the ASGI scope keeps the bytes that were read."""
LARGEST_PAGE = 1000
PAGE = 50
LARGEST_NUMBER = 2**62
LONGEST_ID = 18
"""Digits that every engine has room for."""
LONGEST_TTL = 10 * 366 * 86_400
_WHOLE = re.compile(r"[0-9]{1,19}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,20})?")

Given = Mapping[str, Any]
"""Values by their names: a query's, which are texts, or those of a body."""


class TooLarge(DuctileError):
    code = "body_too_large"
    http_status = 413


def headers_of(request: Request) -> dict[str, list[str]]:
    """Lower-case names to all their values."""
    found: dict[str, list[str]] = {}
    for name, value in request.scope["headers"]:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def producer(request: Request) -> SubmittedBy:
    # The command line names itself on the local socket; anybody else is the API.
    cli = request.app.state.access.local and request.headers.get("x-ductile-client") == "cli"
    return SubmittedBy.CLI if cli else SubmittedBy.API


async def body_of(request: Request, limit: int = LARGEST_BODY) -> bytes:
    """The body, counted while it streams."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the body exceeds {limit} bytes")
        chunks.append(chunk)
    body = b"".join(chunks)
    request.scope[BODY] = body
    return body


async def object_of(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object."""
    raw = await body_of(request)
    if not raw.strip(b" \t\r\n"):
        return {}
    return as_object(_parsed(raw), raw)


async def is_dry(request: Request) -> bool:
    """Whether the body, which says nothing else, wants to know what would be done."""
    return flag_of(await object_of(request), "dry_run")


def as_object(value: Any, raw: bytes) -> dict[str, Any]:
    """What was read from a body, as an object that may be kept; `UsageError` where it is none."""
    if too_deep(value, raw):
        raise UsageError(f"the body is nested more than {DEEPEST} levels deep")
    if has_integer_beyond_64_bits(raw):
        raise UsageError("the body holds an integer beyond 64 bits; send it as text")
    if not isinstance(value, dict):
        raise UsageError("the body must be a JSON object")
    flag_of(value, "dry_run")
    return value


def _parsed(raw: bytes) -> Any:
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        value = _leading(raw)
        if value is None:
            raise UsageError(f"the body is not JSON: {error}") from None
        return value


def _leading(raw: bytes) -> Any:
    """The object that the bytes begin with, whatever follows it (compat); None without one."""
    # A byte each, so that what is no UTF-8 harms only where it stands in the object itself.
    text = raw.decode("latin-1").lstrip(" \t\r\n")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
        return orjson.loads(text[:end].encode("latin-1"))
    except (ValueError, RecursionError):
        return None


def row_id(text: str) -> int | None:
    """The id of a row, as a path or a body names it; None for what is none."""
    good = text.isascii() and text.isdigit() and len(text) <= LONGEST_ID
    return int(text) if good else None


def word(given: Given, name: str, allowed: Iterable[str]) -> str | None:
    """One of the words that are allowed."""
    found: str | None = given.get(name)
    if found is not None and found not in (words := [str(word) for word in allowed]):
        raise UsageError(f"{name} must be one of {', '.join(words)}")
    return found


def status_of(given: Given) -> str | None:
    """The state of a job, by its name or by one that the Go program had for it."""
    found = given.get("status")
    if isinstance(found, str):
        given = {"status": status_named(found)}
    return word(given, "status", JobStatus)


def time_of(given: Given, name: str) -> datetime | None:
    """A time."""
    text = given.get(name)
    if text is None:
        return None
    try:
        if isinstance(text, str):
            return from_text(text)
    except (ValueError, OverflowError):
        pass
    raise UsageError(f"{name} must be a time (ISO 8601)")


def moment(given: Given, name: str) -> str | None:
    """A time, as the ledger writes it."""
    found = time_of(given, name)
    return None if found is None else to_text(found)


def whole(query: Given, name: str, *, least: int = 0, most: int = LARGEST_NUMBER) -> int | None:
    """A whole number of a query, from `least` to `most`."""
    text = query.get(name)
    if text is None:
        return None
    if not _WHOLE.fullmatch(text) or not least <= int(text) <= most:
        raise UsageError(f"{name} must be a whole number from {least} to {most}")
    return int(text)


def limit_of(query: Given, default: int = PAGE) -> int:
    """How many rows a page may have."""
    return whole(query, "limit", least=1, most=LARGEST_PAGE) or default


def before(query: Given) -> int | None:
    """The `cursor` behind which a page goes on."""
    return whole(query, "before") or None


def seconds(query: Given, name: str, most: float) -> float:
    """A number of seconds from 0; more than `most` is `most`."""
    text = query.get(name, "0")
    if not _SECONDS.fullmatch(text):
        raise UsageError(f"{name} must be a number of seconds from 0")
    return min(float(text), most)


def flag(query: Given, name: str) -> bool:
    """`true` or, as without it, `false`."""
    return word(query, name, ("true", "false")) == "true"


def text_of(body: Given, key: str) -> str | None:
    """A text of a body that is not empty."""
    value = body.get(key)
    if value is not None and (not isinstance(value, str) or not value):
        raise UsageError(f"{key} must be a non-empty string")
    return value


def flag_of(body: Given, key: str) -> bool:
    value = body.get(key)
    if not isinstance(value, bool | None):
        raise UsageError(f"{key} must be true or false")
    return bool(value)


def number_of(body: Given, key: str, default: int, *, most: int) -> int:
    """A whole number from 1 to `most`."""
    value = body.get(key, default)
    if type(value) is not int or not 1 <= value <= most:
        raise UsageError(f"{key} must be a whole number from 1 to {most}")
    return value


def duration_of(body: Given, key: str) -> float | None:
    """Seconds: as a number, or as the configuration writes them."""
    value = body.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = parse_duration(value)
        except (ValueError, OverflowError) as error:
            raise UsageError(f"{key}: {error}") from None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST_TTL:
        raise UsageError(f"{key} must be a duration of at most ten years")
    return float(value)


def payload_in(body: Given) -> Json:
    """What a job or an event is to be given; nothing is an empty object."""
    payload = body.get("payload")
    return {} if payload is None else payload
