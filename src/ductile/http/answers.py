"""How every route answers: JSON bodies, one shape of error, bounded requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ductile.core.bounds import DEEPEST, too_deep
from ductile.core.integers import beyond_64_bits
from ductile.errors import DuctileError, UsageError
from ductile.http.knock import PRINCIPAL, Unauthorized
from ductile.http.mailbox import Mailbox
from ductile.log import logger
from ductile.runtime.gateway import Gateway
from ductile.store.ledger import Work

T = TypeVar("T")
LARGEST_BODY = 1024 * 1024
BODY = "ductile.body"
"""Where the scope keeps the bytes that were read."""
AGENTS = "/gateway/"
"""Below it errors are `{"status", "reason"}` (004), with `detail` where there is more to say."""


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        if content is None:
            return b""
        return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE, default=str)


class TooLarge(DuctileError):
    code = "body_too_large"
    http_status = 413


def gateway_of(request: Request) -> Gateway:
    gateway: Gateway = request.app.state.gateway
    return gateway


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


def as_object(value: Any, raw: bytes) -> dict[str, Any]:
    """What was read from a body, as an object that may be kept; `UsageError` where it is none."""
    if too_deep(value, raw):
        raise UsageError(f"the body is nested more than {DEEPEST} levels deep")
    if beyond_64_bits(raw):
        raise UsageError("the body holds an integer beyond 64 bits; send it as text")
    if not isinstance(value, dict):
        raise UsageError("the body must be a JSON object")
    if not isinstance(value.get("dry_run"), bool | None):
        raise UsageError("dry_run must be true or false")
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
    try:
        _, end = json.JSONDecoder().raw_decode(text := raw.decode().lstrip())
        return orjson.loads(text[:end])
    except (ValueError, RecursionError):
        return None


async def reading(gateway: Gateway, work: Work[T]) -> T:
    """A read of the ledger, off the loop."""
    return await asyncio.to_thread(gateway.ledger.read, work)


async def writing(gateway: Gateway, work: Work[T]) -> T:
    """A write, handed to the ledger's own writer; returns once it is durable."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    gateway.ledger.submit(work, partial(Mailbox.here().put, future))
    return await future


def told(path: str, text: str, code: str) -> dict[str, object]:
    """The body of an error, in the shape that holds for this path."""
    if path.startswith(AGENTS):
        return {"status": "error", "reason": code, "detail": text}
    return {"error": text, "code": code}


def problem(error: DuctileError, path: str = "") -> Response:
    """A refusal, with its status and slug."""
    body = {**told(path, error.message, error.code), **error.details}
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else None
    return JsonResponse(body, status_code=error.http_status, headers=headers)


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, DuctileError)
    return redacted(problem(error, request.scope["path"]), gateway_of(request))


async def http_error(request: Request, error: Exception) -> Response:
    """No such route, or not by this method; to a stranger, that a token is needed."""
    assert isinstance(error, HTTPException)
    path = request.scope["path"]
    if not request.app.state.local and request.scope.get(PRINCIPAL) is None:
        return problem(Unauthorized("a good bearer token is needed"), path)
    slug = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    body = told(path, error.detail, slug)
    return JsonResponse(body, status_code=error.status_code, headers=error.headers)


async def gone(_request: Request, _error: Exception) -> Response:
    """The client left before its request was whole; nobody reads this."""
    return Response(status_code=400)


async def crashed(request: Request, error: Exception) -> Response:
    """A bug: the log has the trace, the caller has none of it."""
    logger("http").crash("a request failed", error)
    body = told(request.scope["path"], "internal error", "internal")
    return JsonResponse(body, status_code=500)


def redacted(response: Response, gateway: Gateway) -> Response:
    """The same answer without any secret of the configuration."""
    if isinstance(response, JsonResponse):
        text = bytes(response.body).decode()
        shown = gateway.blueprint.redactor.text(text)
        if shown is not text and shown != text:
            response.body = shown.encode()
            response.headers["content-length"] = str(len(response.body))
    return response


EXCEPTIONS: dict[Any, Callable[[Request, Exception], Any]] = {
    DuctileError: refused,
    HTTPException: http_error,
    ClientDisconnect: gone,
    Exception: crashed,
}

Handler = Callable[[Request], Any]
