"""The webhook listener: raw bytes, verified before anything parses them (002 §10).

A plain application without a router: an endpoint is one look-up, in the configuration that
is in force when the request comes.
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
from ductile.engine.ingress.webhook import AcceptWebhook, verify_webhook
from ductile.http.middleware.auth import (
    check_host,
    check_origin,
    is_from_this_machine,
    read_identity,
)
from ductile.http.middleware.context import AppContext
from ductile.http.requests import TooLarge, body_of, headers_of
from ductile.http.responses import JsonResponse, raised, redacted, refuse, writing
from ductile.http.routes.system import health_of
from ductile.log import logger

SILENCE = 60.0
"""Seconds in which refusals alike are one line of the log."""


class Webhooks:
    """The application of `webhooks.listen`."""

    def __init__(self, app_context: AppContext) -> None:
        self._app_context = app_context
        self._of: CompiledConfig | None = None
        self._endpoints: dict[str, EndpointSettings] = {}
        self._told: dict[tuple[str, str], tuple[float, int]] = {}
        """By path and reason: when it was logged, and how many were refused so since."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            answer = await self._answer(Request(scope, receive))
        except Exception as error:  # noqa: BLE001 - each has its answer
            answer = raised(error, self._app_context.gateway)
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        settings = self._app_context.gateway.compiled.settings.webhooks
        identity = read_identity(request.scope["headers"])
        check_host(identity, request.scope, settings.address[0], settings.allowed_hosts)
        check_origin(identity, ())
        path = request.scope["path"]
        if path == HEALTH:
            if request.method not in ("GET", "HEAD"):
                return refuse(405, "method not allowed", "method_not_allowed")
            near = is_from_this_machine(request.scope)
            answer = await health_of(self._app_context.gateway, whole=near)
            return redacted(answer, self._app_context.gateway)
        endpoint = self._find(path)
        if endpoint is None:
            return refuse(404, "not found", "not_found")
        if request.method != "POST":
            return refuse(405, "method not allowed", "method_not_allowed")
        return await self._take(request, endpoint)

    def _find(self, path: str) -> EndpointSettings | None:
        compiled = self._app_context.gateway.compiled
        if compiled is not self._of:
            self._endpoints = {e.path: e for e in compiled.settings.webhooks.endpoints}
            self._of = compiled
            self._told.clear()
        return self._endpoints.get(path)

    async def _take(self, request: Request, endpoint: EndpointSettings) -> Response:
        """403 and 413 say nothing more: whoever has no secret learns nothing."""
        gateway = self._app_context.gateway
        declared = request.headers.get("content-length", "0")
        try:
            if not declared.isdecimal() or int(declared) > endpoint.max_body_size:
                raise TooLarge("too large")
            body = await body_of(request, endpoint.max_body_size)
        except TooLarge:
            return self._refused(endpoint, "too large", 413, "too large", "too_large")
        headers = headers_of(request)
        said = verify_webhook(endpoint, headers, body, gateway.clock.now().timestamp())
        if isinstance(said, Failure):
            return self._refused(endpoint, said.reason, 403, "forbidden", "forbidden")
        payload = parse_payload(body, headers.get("content-type", [""])[0])
        taken = await writing(gateway, AcceptWebhook(gateway, endpoint, said, payload))
        outcome = "duplicate" if taken.duplicate else "accepted"
        self._app_context.metrics.count_webhook(endpoint.event_name, outcome)
        answer = {"job_id": taken.job_id, "status": "accepted"}
        return JsonResponse(answer | {"duplicate": True} if taken.duplicate else answer, 202)

    def _refused(
        self, endpoint: EndpointSettings, reason: str, status: int, text: str, code: str
    ) -> Response:
        self._tell(endpoint, reason)
        self._app_context.metrics.count_webhook(endpoint.event_name, code)
        return refuse(status, text, code)

    def _tell(self, endpoint: EndpointSettings, reason: str) -> None:
        """Log why a delivery was refused; of many alike, one in a while."""
        now, about = self._app_context.gateway.clock.monotonic(), (endpoint.path, reason)
        told_at, unheard = self._told.get(about, (-math.inf, 0))
        if now - told_at < SILENCE:
            self._told[about] = (told_at, unheard + 1)
            return
        self._told[about] = (now, 0)
        more = {"since_the_last": unheard + 1} if unheard else {}
        logger("webhooks").warning(
            "a webhook was refused", path=endpoint.path, reason=reason, **more
        )
