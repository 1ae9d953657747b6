"""How every route answers: JSON bodies, one shape of error, nothing secret."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.loop_queue import LoopQueue, resolving
from ductile.log import logger
from ductile.store.engines.api import Work

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]
AGENTS = "/gateway/"
"""Below it errors are `{"status", "reason"}` (004), with `detail` where there is more to say."""


class JsonResponse(Response):
    media_type = "application/json"
    redacted = False
    """Whether it is known to hold no secret."""

    def render(self, content: Any) -> bytes:
        return b"" if content is None else rendered(content)


def rendered(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE, default=str)


def gateway_of(request: Request) -> Services:
    return app_context_of(request).gateway


async def reading(gateway: Services, work: Work[T]) -> T:
    """A read of the ledger, off the loop."""
    return await asyncio.to_thread(gateway.ledger.read, work)


async def writing(gateway: Services, work: Work[T]) -> T:
    """A write, handed to the ledger's own writer; returns once it is durable."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    gateway.ledger.submit(work, partial(LoopQueue.here().put, resolving(future)))
    return await future


async def made(gateway: Services, content: Callable[[], Any], status: int = 200) -> Response:
    """An answer that may be large: made, written out and redacted off the loop."""

    def work() -> Response:
        return redacted(JsonResponse(content(), status), gateway)

    return await asyncio.to_thread(work)


def cursor(rows: Sequence[Mapping[str, Any]], limit: int, key: str) -> Any:
    """Behind which row the next page goes on; None on the last one."""
    return rows[-1][key] if len(rows) == limit else None


def acted(told: dict[str, Any], *, dry: bool, **done: Any) -> Response:
    """What is being done (202), or would be."""
    return JsonResponse({**told, "dry_run": True}) if dry else JsonResponse({**told, **done}, 202)


def refuse(
    status: int,
    text: str,
    code: str,
    path: str = "",
    *,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """An error, in the shape that holds for this path."""
    shape = {"error": text, "code": code}
    if path.startswith(AGENTS):
        shape = {"status": "error", "reason": code, "detail": text}
    return JsonResponse({**shape, **(details or {})}, status, headers)


def refuse_agent(status: int, reason: str, **more: str) -> JsonResponse:
    """An error as 004 has it, with nothing more to say."""
    return JsonResponse({"status": "error", "reason": reason, **more}, status)


def problem(error: DuctileError, path: str = "") -> JsonResponse:
    """A refusal, with its status and slug."""
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else None
    return refuse(
        error.http_status, error.message, error.code, path, details=error.details, headers=headers
    )


def raised(error: BaseException, gateway: Services, path: str = "") -> Response:
    """The answer to a request whose handler raised; of a bug the caller learns nothing."""
    if isinstance(error, DuctileError):
        return redacted(problem(error, path), gateway)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # It left before its request was whole; nobody reads this.
    logger("http").crash("a request failed", error)
    return refuse(500, "internal error", "internal", path)


def redacted(response: Response, gateway: Services) -> Response:
    """The same answer without any secret of the configuration."""
    if isinstance(response, JsonResponse) and not response.redacted:
        body = bytes(response.body)
        shown = without_secrets(body, gateway)
        if shown is not body:
            response.body = shown
            response.headers["content-length"] = str(len(shown))
        response.redacted = True
    return response


def without_secrets(body: bytes, gateway: Services) -> bytes:
    """The very same bytes where there are none."""
    text = body.decode()
    shown = gateway.compiled.redactor.text(text)
    return body if shown is text or shown == text else shown.encode()
