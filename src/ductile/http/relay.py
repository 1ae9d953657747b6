"""`POST {remote_ingress.listen_path}/{peer}` on the API listener: authenticated by signature.

It stands before the routes, because its path is the configuration's to choose and may change
with a reload.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from ductile.core.relay import METHOD, Refusal
from ductile.core.relay import Request as Relay
from ductile.errors import DuctileError
from ductile.http.answers import JsonResponse, body_of, crashed, problem, writing
from ductile.http.lobby import Lobby
from ductile.log import logger
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.relay import Ingress

CODES = {400: "bad_request", 403: "forbidden", 422: "event_not_accepted"}


class RelayIngress:
    """An application that takes what peers relay, and hands everything else on."""

    def __init__(self, app: Any, lobby: Lobby) -> None:
        self._app, self._lobby = app, lobby
        self._of: Blueprint | None = None
        self._ingress: Ingress | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        ingress = self._current()
        if scope["type"] != "http" or not ingress.is_for(scope["path"]):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            answer = await self._take(request, ingress)
        except DuctileError as error:
            answer = problem(error)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - logged with its trace, told without
            answer = await crashed(request, error)
        await answer(scope, receive, send)

    def _current(self) -> Ingress:
        blueprint = self._lobby.gateway.blueprint
        if self._ingress is None or blueprint is not self._of:
            self._of, self._ingress = blueprint, Ingress(blueprint)
        return self._ingress

    async def _take(self, request: Request, ingress: Ingress) -> Response:
        if request.method != METHOD:
            told = {"error": "method not allowed", "code": "method_not_allowed"}
            return JsonResponse(told, 405, headers={"Allow": METHOD})
        gateway = self._lobby.gateway
        headers: dict[str, list[str]] = {}
        for name, value in request.scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        body = await body_of(request, ingress.largest_body)
        judged = ingress.verify(Relay(request.scope["path"], headers, body), gateway.clock.now())
        if isinstance(judged, Refusal):
            logger("relay").warning("a relay is refused", reason=judged.reason)
            told = {"error": judged.told, "code": CODES[judged.status]}
            return JsonResponse(told, judged.status)
        arrival = ingress.arrival(judged, gateway.clock, gateway.entropy)
        receipt = await writing(gateway, arrival)
        return JsonResponse(
            {
                "status": "accepted",
                "peer": judged.peer,
                "event_type": judged.event_type,
                "receiver_event_id": receipt.receiver_event_id,
                "job_id": receipt.job_id,
                **({"duplicate": True} if receipt.duplicate else {}),
            },
            202,
        )
