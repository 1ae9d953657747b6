"""The webhook listener: bytes are verified before anything parses them.

It is an application without a router: an endpoint is one look-up in the configuration that is in
force when the request arrives.
"""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config.models.http import HEALTH, EndpointSettings
from ductile.core.delivery.payload import parse_payload
from ductile.core.values.json_values import Failure
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.webhook import AcceptWebhook, find_challenge, verify_webhook
from ductile.http.middleware.auth import (
    check_host,
    check_origin,
    is_from_this_machine,
    read_identity,
)
from ductile.http.middleware.context import AppContext
from ductile.http.requests import TooLarge, headers_of, read_body
from ductile.http.responses import (
    JsonResponse,
    error_response,
    exception_response,
    redact_response,
    write_ledger,
)
from ductile.http.routes.healthz import check_health
from ductile.log import logger

LOG_INTERVAL = 60.0
"""Seconds in which equal refusals are logged once."""


class Webhooks:
    """The application of `webhooks.listen`."""

    def __init__(self, app_context: AppContext) -> None:
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
        settings = services.compiled.settings.webhooks
        identity = read_identity(request.scope["headers"])
        check_host(identity, request.scope, settings.address[0], settings.allowed_hosts)
        check_origin(identity, ())
        path = request.scope["path"]
        if path == HEALTH:
            if request.method not in ("GET", "HEAD"):
                return error_response(405, "method not allowed", "method_not_allowed")
            details = is_from_this_machine(request.scope)
            return redact_response(await check_health(services, details=details), services)
        endpoint = self._find(path)
        if endpoint is None:
            return error_response(404, "not found", "not_found")
        if request.method != "POST":
            return error_response(405, "method not allowed", "method_not_allowed")
        return await self._receive(request, endpoint)

    def _find(self, path: str) -> EndpointSettings | None:
        compiled = self._app_context.services.compiled
        if compiled is not self._compiled:
            self._endpoints = {e.path: e for e in compiled.settings.webhooks.endpoints}
            self._compiled = compiled
            self._logged.clear()
        return self._endpoints.get(path)

    async def _receive(self, request: Request, endpoint: EndpointSettings) -> Response:
        """403 and 413 give no details: a sender without the secret learns nothing."""
        services = self._app_context.services
        declared = request.headers.get("content-length", "0")
        try:
            if not declared.isdecimal() or int(declared) > endpoint.max_body_size:
                raise TooLarge("too large")
            body = await read_body(request, endpoint.max_body_size)
        except TooLarge:
            return self._refuse(endpoint, "too large", 413, "too large", "too_large")
        headers = headers_of(request)
        signed = verify_webhook(endpoint, headers, body, services.clock.now().timestamp())
        if isinstance(signed, Failure):
            return self._refuse(endpoint, signed.reason, 403, "forbidden", "forbidden")
        payload = parse_payload(body, headers.get("content-type", [""])[0])
        challenge = find_challenge(endpoint, payload)
        if challenge is not None:
            self._app_context.metrics.count_webhook(endpoint.event_name, "challenge")
            return JsonResponse({"challenge": challenge})
        taken = await write_ledger(services, AcceptWebhook(services, endpoint, signed, payload))
        outcome = "duplicate" if taken.duplicate else "accepted"
        self._app_context.metrics.count_webhook(endpoint.event_name, outcome)
        accepted = {"job_id": taken.job_id, "status": "accepted"}
        return JsonResponse(accepted | {"duplicate": True} if taken.duplicate else accepted, 202)

    def _refuse(
        self, endpoint: EndpointSettings, reason: str, status: int, text: str, code: str
    ) -> Response:
        self._log_refusal(endpoint, reason)
        self._app_context.metrics.count_webhook(endpoint.event_name, code)
        return error_response(status, text, code)

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
