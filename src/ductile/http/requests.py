"""Reading requests: headers, the bounded body, and both parsed by the models of the route table.

Whatever is malformed raises a `UsageError` that names it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

import orjson
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from starlette.requests import Request

from ductile.config.models.units import parse_duration
from ductile.core.jobs.limits import DEEPEST, too_deep
from ductile.core.values.json_integers import has_integer_beyond_64_bits
from ductile.core.values.suggest import nearest
from ductile.errors import DuctileError, Refused, UsageError, dotted
from ductile.http.models.fields import RequestModel
from ductile.model import NewJob, SubmittedBy

if TYPE_CHECKING:
    from ductile.core.jobs.trace import TraceContext
    from ductile.http.models.bodies import TriggerBody

MAX_BODY = 1024 * 1024
BODY = "ductile.body"
"""ASGI scope key: the bytes of the body, once they are read."""
MAX_ID_DIGITS = 18
"""Every ledger engine has room for a number of this many digits."""
MAX_SUGGESTED = 64
"""Longer names get no suggestion, which would take long to find."""

Model = TypeVar("Model", bound=RequestModel)


@cache
def request_model(name: str) -> type[RequestModel]:
    """Return the query or body model that a row of the route table names."""
    # Loaded at the first use: the classes take 10 ms to define.
    from ductile.http.models import authoring_bodies, bodies, queries

    modules = (bodies, authoring_bodies, queries)
    model: type[RequestModel] = next(
        found for module in modules if (found := getattr(module, name, None)) is not None
    )
    return model


def parse_window(text: str) -> timedelta:
    """Return a duration of the query, such as `10m`."""
    try:
        return timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError) as error:
        raise UsageError(f"window {error}") from None


class TooLarge(DuctileError):
    code = "body_too_large"
    http_status = 413


class InvalidJson(DuctileError):
    """The error of agents for a body that is not JSON."""

    code = "invalid_json"
    http_status = 400


def headers_of(scope: Any) -> dict[str, list[str]]:
    """Return all values of each header, by its lower-case name."""
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
    return found


def submitted_by(request: Request) -> SubmittedBy:
    # The command line identifies itself on the local socket; every other caller is the API.
    local = request.app.state.access.local
    cli = local and request.headers.get("x-ductile-client") == "cli"
    return SubmittedBy.CLI if cli else SubmittedBy.API


def local_directory(request: Request, directory: str | None) -> Path | None:
    """A directory of this machine, which only callers on the local socket can name."""
    if directory is None:
        return None
    if not request.app.state.access.local:
        raise Refused("a directory can be given on the local socket only")
    if not directory.startswith("/") or "\0" in directory:
        raise UsageError("directory must be absolute")
    return Path(directory)


def new_job(
    plugin: str,
    command: str,
    producer: SubmittedBy,
    body: TriggerBody,
    submitter: str,
    trace: TraceContext | None,
) -> NewJob:
    """Return the job that a trigger asks for."""
    return NewJob(
        plugin,
        command,
        producer,
        payload=body.payload,
        dedupe_key=body.dedupe_key,
        dedupe_ttl=body.dedupe_ttl,
        submitter=submitter,
        priority=body.priority or 0.0,
        trace=None if trace is None else trace.to_column(),
    )


def row_id(text: str) -> int | None:
    """Return the numeric id that a path or body names; None if it is not a valid one."""
    valid = text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS
    return int(text) if valid else None


# Bodies


async def read_body(request: Request, limit: int = MAX_BODY) -> bytes:
    """Return the body, whose size is checked while it arrives."""
    chunks, size = [], 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"the body exceeds {limit} bytes")
        chunks.append(chunk)
    body = b"".join(chunks)
    request.scope[BODY] = body
    return body


async def wait_for_disconnect(request: Request) -> None:
    """Return when the caller has gone. The body has been read."""
    while (await request.receive()).get("type") != "http.disconnect":
        pass


def parse_body(
    model: type[Model],
    raw: bytes,
    *,
    allow_trailing: bool = False,
    json_error: type[DuctileError] = UsageError,
) -> Model:
    """Parse a JSON object; an empty body is an empty object."""
    if not raw.strip(b" \t\r\n"):
        return validate(model, {}, "body")
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        value = _leading_value(raw) if allow_trailing else None
        if value is None:
            raise json_error(f"the body is not valid JSON: {error}") from None
    return validate(model, check_object(value, raw), "body")


def check_object(value: Any, raw: bytes) -> dict[str, Any]:
    """Return the parsed body if it is an object that can be stored."""
    if too_deep(value, raw):
        raise UsageError(f"the body is nested more than {DEEPEST} levels deep")
    if has_integer_beyond_64_bits(raw):
        raise UsageError("the body contains an integer beyond 64 bits; send it as text")
    if not isinstance(value, dict):
        raise UsageError("the body must be a JSON object")
    return value


def _leading_value(raw: bytes) -> Any:
    """Return the JSON value that the bytes begin with, whatever follows it; None without one."""
    # One character per byte, so that invalid UTF-8 matters only within the value itself.
    text = raw.decode("latin-1").lstrip(" \t\r\n")
    try:
        _, end = json.JSONDecoder().raw_decode(text)
        return orjson.loads(text[:end].encode("latin-1"))
    except (ValueError, RecursionError):
        return None


# Queries


def parse_query(model: type[Model], request: Request) -> Model:
    """Parse the query; of a repeated parameter the last value counts, unless it is a list."""
    query = request.query_params
    given: dict[str, Any] = dict(query)
    for name, field in _known_names(model).items():
        if name in given and get_origin(field.annotation) is list:
            given[name] = query.getlist(name)
    return validate(model, given, "query")


def refuse_query(request: Request) -> None:
    """Refuse every parameter of a route that takes none."""
    for name in request.query_params:
        raise _unknown_name("query", (name,), ())


# Validation errors


def validate(model: type[Model], given: Mapping[str, Any], part: str) -> Model:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _usage_error(model, error, part) from None


def _usage_error(model: type[RequestModel], error: ValidationError, part: str) -> UsageError:
    """Report an unknown name first, since a misspelled one is missing as well; else everything."""
    errors = error.errors(include_url=False, include_input=False)
    for item in errors:
        if item["type"] == "extra_forbidden":
            return _unknown_name(part, item["loc"], _known_names(model, item["loc"][:-1]))
    return UsageError("; ".join(_message(dict(item)) for item in errors))


def _message(item: Mapping[str, Any]) -> str:
    name = dotted(item["loc"])
    if item["type"] == "missing":
        return f"{name} is required"
    text = str(item["ctx"]["error"]) if item["type"] == "value_error" else str(item["msg"])
    if not name:
        return text
    return f"{name} {text}" if text.startswith("must") else f"{name}: {text}"


def _unknown_name(part: str, loc: tuple[int | str, ...], known: Iterable[str]) -> UsageError:
    name = str(loc[-1])
    noun = "query parameter" if part == "query" else "key"
    where = "" if part == "query" else f" in {dotted(loc[:-1]) or 'the request body'}"
    close = nearest(name, known) if len(name) <= MAX_SUGGESTED else None
    text = f"unknown {noun} {name[:MAX_SUGGESTED]!r}{where}"
    if close is None:
        return UsageError(f"{text}; allowed: {', '.join(known) or 'none'}", key=name[:200])
    return UsageError(f"{text}; did you mean {close!r}?", key=name, suggestion=close)


def _known_names(
    model: type[RequestModel], path: tuple[int | str, ...] = ()
) -> dict[str, FieldInfo]:
    """Return the fields of a model, or of the model at a path in it, by their public names."""
    for part in path:
        annotation = model.model_fields[str(part)].annotation
        # Of `Model | None`, the model.
        inner = next(kind for kind in (*get_args(annotation), annotation) if kind is not NoneType)
        assert isinstance(inner, type)
        assert issubclass(inner, RequestModel)
        model = inner
    return {field.alias or name: field for name, field in model.model_fields.items()}
