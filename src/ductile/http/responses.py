"""Building responses: JSON bodies, one error shape per part of the API, redacted secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import orjson
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.http.crash_log import log_crash
from ductile.http.middleware.audit import with_entry
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.loop_queue import LoopQueue, resolve_future
from ductile.store.engines.api import Work
from ductile.store.jobs.enqueue import Enqueued

T = TypeVar("T")
Handler = Callable[..., Awaitable[Response]]
"""Takes the request, and the parsed query and body if its endpoint has models for them."""
AGENT_ROUTES = "/gateway/"
"""Under this prefix errors are `{"status", "reason"}`, with a `detail` for people."""


class JsonResponse(Response):
    media_type = "application/json"
    redacted = False
    """Whether secrets have been removed already."""

    def render(self, content: Any) -> bytes:
        return b"" if content is None else render_json(content)


def render_json(content: Any) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE, default=str)


def services_of(request: Request) -> Services:
    return app_context_of(request).services


def describe_queued(job: Enqueued, plugin: str, command: str) -> dict[str, Any]:
    """Return the body of the response to a trigger."""
    return {
        "job_id": job.job_id,
        "status": job.status,
        "plugin": plugin,
        "command": command,
        "deduplicated": job.deduplicated,
    }


async def read_ledger(services: Services, work: Work[T]) -> T:
    """Run a read transaction in a thread."""
    return await asyncio.to_thread(services.ledger.read, work)


async def write_ledger(services: Services, work: Work[T]) -> T:
    """Hand a write transaction to the ledger's writer; return once it is durable."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    work = with_entry(work, services.clock.now())
    LoopQueue.current().submit(services.ledger, work, resolve_future(future))
    return await future


async def run_transaction(services: Services, work: Work[T], *, dry_run: bool) -> T:
    """Write, or with `dry_run` only read."""
    return await (read_ledger if dry_run else write_ledger)(services, work)


async def build_response(
    services: Services, content: Callable[[], Any], status: int = 200
) -> Response:
    """Build, encode and redact a response that may be large in a thread."""

    def work() -> Response:
        return redact_response(JsonResponse(content(), status), services)

    return await asyncio.to_thread(work)


def split_page(
    rows: list[dict[str, Any]], limit: int, key: str
) -> tuple[list[dict[str, Any]], Any]:
    """Return a page and the key of its last row; None instead of the key on the last page.

    `rows` has one row more than the page if there is one: a page that is merely full may be the
    last.
    """
    page = rows[:limit]
    return page, page[-1][key] if len(rows) > limit else None


def action_response(plan: dict[str, Any], *, dry_run: bool, **done: Any) -> Response:
    """Return 202 with the plan and what was done, or with `dry_run` 200 and the plan alone."""
    if dry_run:
        return change_response(plan, dry_run=True)
    return JsonResponse({**plan, **done}, 202)


def change_response(done: dict[str, Any], *, dry_run: bool) -> Response:
    """Return 200 with what was done, or with `dry_run` would be."""
    return JsonResponse({**done, "dry_run": True} if dry_run else done)


def error_response(
    status: int,
    text: str,
    code: str,
    path: str = "",
    *,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JsonResponse:
    """Return an error in the shape of the routes at this path."""
    shape = {"error": text, "code": code}
    if path.startswith(AGENT_ROUTES):
        shape = {"status": "error", "reason": code, "detail": text}
    return JsonResponse({**shape, **(details or {})}, status, headers)


def agent_error(status: int, reason: str, **more: str) -> JsonResponse:
    """Return an error of the agent protocol, which has no text for people."""
    return JsonResponse({"status": "error", "reason": reason, **more}, status)


def refusal_response(error: DuctileError, path: str = "") -> JsonResponse:
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else None
    if "retry_after" in error.details:
        headers = {"Retry-After": str(error.details["retry_after"])}
    return error_response(
        error.http_status, error.message, error.code, path, details=error.details, headers=headers
    )


def exception_response(error: BaseException, services: Services, path: str = "") -> Response:
    """Return the response to a request whose handler raised; a bug is logged, not shown."""
    if isinstance(error, DuctileError):
        return redact_response(refusal_response(error, path), services)
    if isinstance(error, ClientDisconnect):
        return Response(status_code=400)  # The client has gone and does not read this.
    log_crash("request failed", error)
    return error_response(500, "internal error", "internal", path)


def redact_response(response: Response, services: Services) -> Response:
    """Remove the configuration's secrets from a JSON response."""
    if isinstance(response, JsonResponse) and not response.redacted:
        body = bytes(response.body)
        shown = redact_body(body, services)
        if shown is not body:
            response.body = shown
            response.headers["content-length"] = str(len(shown))
        response.redacted = True
    return response


def redact_body(body: bytes, services: Services) -> bytes:
    """Return the body without secrets; the same object if there are none."""
    text = body.decode()
    shown = services.compiled.redactor.json(text)
    return body if shown is text or shown == text else shown.encode()
