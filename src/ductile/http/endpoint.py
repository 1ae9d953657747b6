"""A row of the route table, and the handler that serves it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile._fast_dataclass import dataclass
from ductile.config import Settings
from ductile.errors import DuctileError, LedgerError, UsageError
from ductile.http.middleware.audit import describe_action, log_entry, pending_entry
from ductile.http.middleware.auth import ENDPOINT, authorize, principal_of, reauthorize
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import (
    MAX_BODY,
    parse_body,
    parse_query,
    read_body,
    refuse_query,
    request_model,
)
from ductile.http.responses import Handler, redact_response, services_of, write_ledger
from ductile.log import logger


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    token_scope: str | None
    """The scope that a token must have; None is public, `any` takes every valid token."""
    handler_name: str
    """Names the handler in `http/routes`, which its first request imports."""
    returns: str | Mapping[int, str]
    """Names the response model of `http/models/responses`, for status 200 or by status."""
    query: str | None = None
    """Names the model in `http/models/queries`."""
    body: str | None = None
    """Names the model in `http/models/bodies` or `authoring_bodies`."""
    raw_body: str | None = None
    """Names the model of a body that the handler reads itself; empty for any body at all."""
    max_body: int = MAX_BODY
    allow_trailing: bool = False
    """Whether bytes after the JSON value of the body are ignored."""
    json_error: type[DuctileError] = UsageError
    """Raised for a body that is not JSON."""
    headers: tuple[str, ...] = ()
    """Request headers that the handler reads."""
    audit: str | None = None
    """The action in the audit log, a noun and a verb; None if the request is not recorded."""
    is_public: Callable[[Settings], bool] | None = None
    """Whether the configuration makes it public."""

    @property
    def handler(self) -> Handler:
        """Called with the request, the parsed query if there is a model, and likewise the body."""
        return _load_handler(self.handler_name)

    @property
    def responses(self) -> dict[int, str]:
        return {200: self.returns} if isinstance(self.returns, str) else dict(self.returns)


@cache
def _load_handler(name: str) -> Handler:
    module, _, function = name.rpartition(".")
    handler: Handler = getattr(import_module(f"ductile.http.routes.{module}"), function)
    return handler


def bind(endpoint: Endpoint) -> Handler:
    """Return the handler behind access control and parsing; its response is redacted."""

    async def handler(request: Request) -> Response:
        services, metrics = services_of(request), app_context_of(request).metrics
        started, status = services.clock.monotonic(), 500
        try:
            request.scope[ENDPOINT] = endpoint
            authorize(request)
            response = await _call(endpoint, request)
            status = response.status_code
            return redact_response(response, services)
        except DuctileError as error:
            status = error.http_status
            raise
        finally:
            took = services.clock.monotonic() - started
            metrics.count_request(endpoint.method, endpoint.path, status, took)

    return handler


async def _call(endpoint: Endpoint, request: Request) -> Response:
    _replace_nul(request)
    arguments: list[Any] = []
    query = None
    if endpoint.query is not None:
        query = parse_query(request_model(endpoint.query), request)
        arguments.append(query)
    elif endpoint.token_scope is not None and endpoint.raw_body is None:
        refuse_query(request)
    if endpoint.body is not None:
        raw = await read_body(request, endpoint.max_body)
        arguments.append(
            parse_body(
                request_model(endpoint.body),
                raw,
                allow_trailing=endpoint.allow_trailing,
                json_error=endpoint.json_error,
            )
        )
    if endpoint.audit is not None and not any(getattr(a, "dry_run", False) for a in arguments):
        return await _call_recorded(endpoint, endpoint.audit, request, arguments)
    if not getattr(query, "wait", 0):
        return await endpoint.handler(request, *arguments)
    principal = principal_of(request)
    assert principal is not None, "no public route waits"
    with app_context_of(request).waits.place(principal):
        response = await endpoint.handler(request, *arguments)
    await reauthorize(request)
    return response


async def _call_recorded(
    endpoint: Endpoint, action: str, request: Request, arguments: list[Any]
) -> Response:
    """Call the handler and write its audit entry, if it succeeds and has not written it."""
    services = services_of(request)
    with pending_entry(describe_action(request, action, arguments)) as pending:
        response = await endpoint.handler(request, *arguments)
        if response.status_code >= 400:
            return response
        try:
            if not pending.is_written:
                await write_ledger(services, lambda _tx: None)
        except LedgerError as error:
            # The action has taken effect: the response must not deny it.
            logger("audit").error("audit entry could not be stored", error=error.message)
        log_entry(pending.entry)
    return response


def _replace_nul(request: Request) -> None:
    """U+0000 is in no name and in no filter, and PostgreSQL does not store it."""
    for name, value in request.path_params.items():
        request.path_params[name] = value.replace("\0", "\ufffd")
    if b"%00" in request.scope["query_string"]:
        raise UsageError("a query parameter must not contain U+0000")
