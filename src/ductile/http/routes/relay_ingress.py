"""Relay ingress, `POST {remote_ingress.listen_path}/{peer}` on the API listener.

It is not in the route table, because the configuration chooses its path and a reload may change
it. An API route with the same path takes precedence. The peer's signature replaces the token.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.delivery.relay import (
    MALFORMED,
    MALFORMED_CODE,
    METHOD,
    Peer,
    RelayedEvent,
    RelayRejection,
    RelayRequest,
)
from ductile.core.jobs.trace import TraceContext
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.relay import RelayIngressRules, ReplayedRelay
from ductile.http.middleware.caller import trace_of
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.router import PathRouter
from ductile.http.requests import headers_of, read_body
from ductile.http.responses import (
    JsonResponse,
    error_response,
    exception_response,
    redact_response,
    write_ledger,
)
from ductile.log import logger

ROUTE = "{remote_ingress.listen_path}/{peer}"
"""The route's name in metrics, which never contain a path from a caller."""
CODES = {MALFORMED: MALFORMED_CODE, 403: "forbidden", 422: "event_not_accepted"}


class RelayIngress:
    """The application for events that peers relay."""

    def __init__(self, router: PathRouter, app_context: AppContext) -> None:
        self._router, self._app_context = router, app_context
        self._compiled: CompiledConfig | None = None
        self._ingress: RelayIngressRules | None = None

    def handles(self, path: str) -> bool:
        """Return whether the path belongs to relay ingress and to no route of the API."""
        return self._current().matches(path) and not self._router.has_route(path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        services, request = self._app_context.services, Request(scope, receive)
        started = services.clock.monotonic()
        try:
            response = await self._receive(request, self._current())
        except Exception as error:  # noqa: BLE001 - every error has a response
            response = exception_response(error, services)
        took = services.clock.monotonic() - started
        self._app_context.metrics.count_request(METHOD, ROUTE, response.status_code, took)
        await redact_response(response, services)(scope, receive, send)

    def _current(self) -> RelayIngressRules:
        """Return the ingress of the configuration in force."""
        compiled = self._app_context.services.compiled
        if self._ingress is None or compiled is not self._compiled:
            self._compiled, self._ingress = compiled, RelayIngressRules(compiled)
        return self._ingress

    async def _receive(self, request: Request, ingress: RelayIngressRules) -> Response:
        if request.method != METHOD:
            allow = {"Allow": METHOD}
            return error_response(405, "method not allowed", "method_not_allowed", headers=allow)
        path, body = request.scope["path"], await read_body(request, ingress.largest_body)
        now = self._app_context.services.clock.now()
        verified = ingress.verify(RelayRequest(path, headers_of(request.scope), body), now)
        if not isinstance(verified, RelayRejection):
            try:
                trace = trace_of(request.scope, self._app_context.services)
                return await self._accept(verified, ingress, trace)
            except ReplayedRelay as error:
                verified = RelayRejection(
                    403, error.message, "a request with this signature was accepted before"
                )
        return self._refuse(verified, ingress.find_peer(path))

    def _refuse(self, refusal: RelayRejection, peer: Peer | None) -> Response:
        """Log the refusal, limited to a few lines per minute for failed authentication."""
        fields = {"peer": None if peer is None else peer.name, "reason": refusal.reason}

        def record(suppressed: int) -> None:
            logger("relay").warning("relay refused", **fields, suppressed=suppressed or None)

        if refusal.status == 403:
            prefix = self._current().prefix
            endpoint = prefix if peer is None else f"{prefix}{peer.name}"
            self._app_context.refused_webhooks.count(endpoint, refusal.reason)
            self._app_context.record_rejection(refusal.reason, record)
        else:
            record(0)
        return error_response(refusal.status, refusal.message, CODES[refusal.status])

    async def _accept(
        self, relayed: RelayedEvent, ingress: RelayIngressRules, trace: TraceContext | None
    ) -> Response:
        services = self._app_context.services
        receipt = await write_ledger(
            services, ingress.accept(relayed, services.clock, services.entropy, trace)
        )
        if receipt.job_id is None and not receipt.duplicate:
            fields = {"peer": relayed.peer, "event_type": relayed.event_type}
            logger("relay").debug("event has no consumer", **fields)
        return JsonResponse(
            {
                "status": "accepted",
                "peer": relayed.peer,
                "event_type": relayed.event_type,
                "receiver_event_id": receipt.receiver_event_id,
                "job_id": receipt.job_id,
                **({"duplicate": True} if receipt.duplicate else {}),
                **({"deduplicated": True} if receipt.deduplicated else {}),
            },
            202,
        )
