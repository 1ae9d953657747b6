"""How every route answers: JSON bodies, one shape of error, bounded requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import DuctileError, UsageError
from ductile.runtime.gateway import Gateway
from ductile.runtime.log import logger
from ductile.store.ledger import Work

T = TypeVar("T")
LARGEST_BODY = 1024 * 1024
DEEPEST_BODY = 100


class JsonResponse(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
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
    return b"".join(chunks)


async def object_of(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty body is an empty object."""
    raw = await body_of(request)
    if not raw.strip():
        return {}
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise UsageError(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError("the body must be a JSON object")
    return value


async def reading(gateway: Gateway, work: Work[T]) -> T:
    """A read of the ledger, off the loop."""
    return await asyncio.to_thread(gateway.ledger.read, work)


async def writing(gateway: Gateway, work: Work[T]) -> T:
    """A write, handed to the ledger's own writer; returns once it is durable."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(result: Any, error: BaseException | None) -> None:
        loop.call_soon_threadsafe(_resolve, future, result, error)

    gateway.ledger.submit(work, done)
    return await future


def _resolve(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


async def refused(_request: Request, error: Exception) -> Response:
    """A refusal, with its status and slug."""
    assert isinstance(error, DuctileError)
    body = {"error": error.message, "code": error.code, **error.details}
    return JsonResponse(body, status_code=error.http_status)


async def http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    slug = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "http_error")
    body = {"error": error.detail, "code": slug}
    return JsonResponse(body, status_code=error.status_code, headers=error.headers)


async def crashed(_request: Request, error: Exception) -> Response:
    """A bug: the log has the trace, the caller has none of it."""
    logger("http").crash("a request failed", error)
    return JsonResponse({"error": "internal error", "code": "internal"}, status_code=500)


Handler = Callable[[Request], Any]
