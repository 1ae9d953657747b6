"""The webhook listener: bytes are verified before anything parses them.

It is an application without a router: an endpoint is one look-up in the configuration that is in
force when the request arrives. The fast path takes small requests that are accepted; the normal
route takes all others, and refuses.
"""

from __future__ import annotations

import math
import sys
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config.models.http import HEALTH, EndpointSettings
from ductile.core.delivery.payload import parse_payload
from ductile.core.values.json_values import Failure
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.webhook import (
    AcceptedWebhook,
    AcceptWebhook,
    find_challenge,
    verify_webhook,
)
from ductile.errors import DuctileError
from ductile.http.middleware.caller import trace_of
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.fast_path import FastPath, FastRoute, Respond
from ductile.http.middleware.loop_queue import LoopQueue
from ductile.http.middleware.source import (
    WrongHost,
    check_host,
    check_origin,
    is_from_this_machine,
    read_identity,
)
from ductile.http.requests import TooLarge, headers_of, read_body
from ductile.http.responses import (
    JsonResponse,
    error_response,
    exception_response,
    redact_response,
    render_json,
    write_ledger,
)
from ductile.http.routes.healthz import check_health
from ductile.log import logger

LOG_INTERVAL = 60.0
"""Seconds in which equal refusals are logged once."""


class Webhooks:
    """The application of `webhooks.listen`."""

    def __init__(self, app_context: AppContext) -> None:
        self.fast_path = WebhookFastPath(self, app_context)
        self._app_context = app_context
        self._compiled: CompiledConfig | None = None
        self._endpoints: dict[str, EndpointSettings] = {}
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}
        """By path and reason: when a refusal was logged, and how many were suppressed since."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            response = await self._serve(Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - every error has a response
            response = exception_response(error, self._app_context.services)
        await response(scope, receive, send)

    async def _serve(self, request: Request) -> Response:
        services = self._app_context.services
        path = request.scope["path"]
        try:
            self.check_source(request.scope)
        except WrongHost:
            if request.method == "POST" and self.find(path) is not None:
                self._count_refusal(path, "the Host is not in webhooks.allowed_hosts")
            raise
        if path == HEALTH:
            if request.method not in ("GET", "HEAD"):
                return error_response(405, "method not allowed", "method_not_allowed")
            details = is_from_this_machine(request.scope)
            return redact_response(await check_health(services, details=details), services)
        endpoint = self.find(path)
        if endpoint is None:
            if request.method == "POST":
                self._count_refusal(None, "no endpoint has this path")
            return error_response(404, "not found", "not_found")
        if request.method != "POST":
            return error_response(405, "method not allowed", "method_not_allowed")
        return await self._receive(request, endpoint)

    def check_source(self, scope: Any) -> None:
        """Raise `WrongHost` and `ForeignOrigin`."""
        settings = self._app_context.services.compiled.settings.webhooks
        identity = read_identity(scope["headers"])
        check_host(identity, scope, settings.address[0], settings.allowed_hosts)
        check_origin(identity, ())

    def find(self, path: str) -> EndpointSettings | None:
        compiled = self._app_context.services.compiled
        if compiled is not self._compiled:
            endpoints = compiled.settings.webhooks.endpoints
            self._endpoints = {e.path: e for e in endpoints if e.path != HEALTH}
            self._compiled = compiled
            self._logged.clear()
        return self._endpoints.get(path)

    async def _receive(self, request: Request, endpoint: EndpointSettings) -> Response:
        """403 and 413 give no details: a sender without the secret learns nothing."""
        try:
            declared = declared_size(request.scope)
            if declared is not None and declared > endpoint.max_body_size:
                raise TooLarge("too large")
            body = await read_body(request, endpoint.max_body_size)
        except TooLarge:
            return self._refuse(endpoint, "too large", 413, "too large", "too_large")
        work = self.verify(request.scope, endpoint, body)
        if isinstance(work, Failure):
            return self._refuse(endpoint, work.reason, 403, "forbidden", "forbidden")
        if isinstance(work, str):
            self._app_context.metrics.count_webhook(endpoint.event_name, "challenge")
            return JsonResponse({"challenge": work})
        taken = await write_ledger(self._app_context.services, work)
        return JsonResponse(self.describe(endpoint, taken), 202)

    def verify(
        self, scope: Any, endpoint: EndpointSettings, body: bytes
    ) -> AcceptWebhook | str | Failure:
        """Return the transaction of a signed request, or the challenge that it consists of."""
        services, headers = self._app_context.services, headers_of(scope)
        signed = verify_webhook(endpoint, headers, body, services.clock.now().timestamp())
        if isinstance(signed, Failure):
            return signed
        payload = parse_payload(body, headers.get("content-type", [""])[0])
        challenge = find_challenge(endpoint, payload)
        if challenge is not None:
            return challenge
        return AcceptWebhook(services, endpoint, signed, payload, trace_of(scope, services))

    def describe(self, endpoint: EndpointSettings, taken: AcceptedWebhook) -> dict[str, Any]:
        """Count a request that is stored, and return its response."""
        outcome = "duplicate" if taken.duplicate else "accepted"
        self._app_context.metrics.count_webhook(endpoint.event_name, outcome)
        accepted = {"job_id": taken.job_id, "status": "accepted"}
        return accepted | {"duplicate": True} if taken.duplicate else accepted

    def _refuse(
        self, endpoint: EndpointSettings, reason: str, status: int, text: str, code: str
    ) -> Response:
        self._log_refusal(endpoint, reason)
        self._count_refusal(endpoint.path, reason)
        self._app_context.metrics.count_webhook(endpoint.event_name, code)
        return error_response(status, text, code)

    def _count_refusal(self, path: str | None, reason: str) -> None:
        self._app_context.refused_webhooks.count(path, reason)

    def _log_refusal(self, endpoint: EndpointSettings, reason: str) -> None:
        """Log why a delivery was refused; equal refusals are logged once per interval."""
        now, key = self._app_context.services.clock.monotonic(), (endpoint.path, reason)
        logged_at, suppressed = self._logged.get(key, (-math.inf, 0))
        if now - logged_at < LOG_INTERVAL:
            self._logged[key] = (logged_at, suppressed + 1)
            return
        self._logged[key] = (now, 0)
        count = {"refused_since_last_log": suppressed + 1} if suppressed else {}
        logger("webhooks").warning("webhook refused", path=endpoint.path, reason=reason, **count)


class WebhookFastPath(FastPath, FastRoute):
    """Takes requests that declare their size, and whose signature is valid."""

    def __init__(self, webhooks: Webhooks, app_context: AppContext) -> None:
        self._webhooks, self._services = webhooks, app_context.services

    def route_for(self, scope: Any) -> FastRoute | None:
        endpoint = self._webhooks.find(scope["path"]) if scope["method"] == "POST" else None
        size = declared_size(scope)
        if endpoint is None or size is None or size > endpoint.max_body_size:
            return None
        try:
            self._webhooks.check_source(scope)
        except DuctileError:
            return None
        return self

    def take(self, scope: Any, body: bytes, respond: Respond) -> bool:
        # A reload may have replaced or removed the endpoint since the head was received.
        endpoint = self._webhooks.find(scope["path"])
        if endpoint is None or len(body) > endpoint.max_body_size:
            return False
        try:
            work = self._webhooks.verify(scope, endpoint, body)
            if not isinstance(work, AcceptWebhook):
                return False
            committed = partial(self._respond, endpoint, respond)
            LoopQueue.current().submit(self._services.ledger, work, committed)
        except DuctileError:
            return False
        return True

    def _respond(
        self,
        endpoint: EndpointSettings,
        respond: Respond,
        taken: AcceptedWebhook | None,
        error: BaseException | None,
    ) -> None:
        """Report the outcome of the commit.

        The normal route must not repeat the request: it may be stored despite an error.
        """
        if error is None:
            assert taken is not None
            respond((202, render_json(self._webhooks.describe(endpoint, taken))))
        else:
            response = exception_response(error, self._services)
            respond((response.status_code, bytes(response.body)))


def declared_size(scope: Any) -> int | None:
    """Return the size of the body that the head declares; None if it declares none."""
    for name, value in scope["headers"]:
        if name == b"content-length":
            return int(value) if value.isdigit() else sys.maxsize
    return None
