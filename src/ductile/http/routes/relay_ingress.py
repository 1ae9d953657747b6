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
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.ingress.relay import RelayIngressRules, ReplayedRelay
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.router import PathRouter
from ductile.http.requests import body_of, headers_of
from ductile.http.responses import JsonResponse, raised, redacted, refuse, writing
from ductile.log import logger

ROUTE = "{remote_ingress.listen_path}/{peer}"
"""What metrics call it: never the path of a caller."""
CODES = {MALFORMED: MALFORMED_CODE, 403: "forbidden", 422: "event_not_accepted"}


class RelayIngress:
    """The application for events that peers relay."""

    def __init__(self, router: PathRouter, app_context: AppContext) -> None:
        self._router, self._app_context = router, app_context
        self._of: CompiledConfig | None = None
        self._ingress: RelayIngressRules | None = None

    def handles(self, path: str) -> bool:
        """Return whether the path belongs to relay ingress and to no route of the API."""
        return self._current().matches(path) and not self._router.knows(path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        ingress = self._current()
        gateway, request = self._app_context.gateway, Request(scope, receive)
        before = gateway.clock.monotonic()
        try:
            answer = await self._take(request, ingress)
        except Exception as error:  # noqa: BLE001 - each has its answer
            answer = raised(error, gateway)
        took = gateway.clock.monotonic() - before
        self._app_context.metrics.count_request(METHOD, ROUTE, answer.status_code, took)
        await redacted(answer, gateway)(scope, receive, send)

    def _current(self) -> RelayIngressRules:
        compiled = self._app_context.gateway.compiled
        if self._ingress is None or compiled is not self._of:
            self._of, self._ingress = compiled, RelayIngressRules(compiled)
        return self._ingress

    async def _take(self, request: Request, ingress: RelayIngressRules) -> Response:
        if request.method != METHOD:
            allow = {"Allow": METHOD}
            return refuse(405, "method not allowed", "method_not_allowed", headers=allow)
        path, body = request.scope["path"], await body_of(request, ingress.largest_body)
        now = self._app_context.gateway.clock.now()
        judged = ingress.verify(RelayRequest(path, headers_of(request), body), now)
        if not isinstance(judged, RelayRejection):
            try:
                return await self._accepted(judged, ingress)
            except ReplayedRelay as error:
                judged = RelayRejection(
                    403, error.message, "a request with this signature was accepted before"
                )
        return self._refused(judged, ingress.find_peer(path))

    def _refused(self, refusal: RelayRejection, peer: Peer | None) -> Response:
        """What a stranger is refused for is told to the log a few times a minute."""
        forbidden, now = refusal.status == 403, self._app_context.gateway.clock.now()
        unsaid = self._app_context.rejections.admit(refusal.reason, now) if forbidden else 0
        if unsaid is not None:
            name = None if peer is None else peer.name
            why = {"peer": name, "reason": refusal.reason, "unsaid": unsaid or None}
            logger("relay").warning("a relay is refused", **why)
        return refuse(refusal.status, refusal.message, CODES[refusal.status])

    async def _accepted(self, relayed: RelayedEvent, ingress: RelayIngressRules) -> Response:
        gateway = self._app_context.gateway
        accept = ingress.accept(relayed, gateway.clock, gateway.entropy)
        receipt = await writing(gateway, accept)
        if receipt.job_id is None and not receipt.duplicate:
            about = {"peer": relayed.peer, "event_type": relayed.event_type}
            logger("relay").debug("event has no consumer", **about)
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
