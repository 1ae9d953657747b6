"""Before every route of the API: the right host, no foreign page, a token that is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ductile.core.values import scopes
from ductile.engine.ingress.auth import LOCAL, Principal
from ductile.engine.services import Services
from ductile.errors import DuctileError
from ductile.http.middleware import identity
from ductile.http.middleware.context import AppContext, app_context_of
from ductile.http.responses import JsonResponse, gateway_of, problem
from ductile.plugins.manifest import CommandType

if TYPE_CHECKING:
    from ductile.http.middleware.fast_path import FastPath

METHODS = b"GET, POST, DELETE, OPTIONS"
HEADERS = b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID"


class Forbidden(DuctileError):
    code = "forbidden"
    http_status = 403


class Guard:
    """An application behind a check of host, origin and token.

    Who it is goes into the ASGI scope; what they may do is for the route's own check.
    """

    def __init__(self, app: Any, app_context: AppContext, express: FastPath) -> None:
        self._app, self._app_context, self.express = app, app_context, express

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        api = self._app_context.gateway.compiled.settings.api
        told = identity.read(scope["headers"])
        try:
            identity.check_host(told, scope, api.address[0], api.allowed_hosts)
            if identity.check_origin(told, api.allowed_origins):
                assert told.origin is not None
                send = _sharing(send, told.origin.encode("latin-1"))
                if scope["method"] == "OPTIONS":
                    await JsonResponse(None, 204)(scope, receive, send)
                    return
        except DuctileError as error:
            await problem(error, scope["path"])(scope, receive, send)
            return
        try:
            scope[identity.PRINCIPAL] = await self._app_context.who(told.token)
        except DuctileError as error:
            # What is open to all stays so; the rest is refused by `permit`.
            scope[identity.PRINCIPAL], scope[identity.UNKNOWN] = None, error
        await self._app(scope, receive, send)


def _sharing(send: Any, origin: bytes) -> Any:
    """Tell the browser that this origin may read the answer."""

    async def shared(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message["headers"],
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-methods", METHODS),
                (b"access-control-allow-headers", HEADERS),
                (b"vary", b"Origin"),
            ]
        await send(message)

    return shared


def principal_of(request: Request) -> Principal | None:
    """Who asks; None is nobody we know."""
    return LOCAL if request.app.state.local else request.scope.get(identity.PRINCIPAL)


def permit(request: Request, wanted: str | None) -> None:
    """401 without a good token, 403 without the scope that the route asks for."""
    if wanted is None or request.app.state.local:
        return
    principal = principal_of(request)
    if principal is None:
        raise identity.stranger(request.scope)
    if wanted == scopes.PLUGIN:
        plugin, command = request.path_params["plugin"], request.path_params["command"]
        allowed = may_run(gateway_of(request), principal, plugin, command)
        wanted = f"plugin:{'ro' if _reads(gateway_of(request), plugin, command) else 'rw'}"
    else:
        allowed = scopes.allows(principal.scopes, wanted)
    if not allowed:
        raise Forbidden(f"this token does not have the scope {wanted}", scope=wanted)


async def permit_again(request: Request, wanted: str | None) -> None:
    """As `permit`, by what holds now: a token may end while its request is answered."""
    if not request.app.state.local:
        token = identity.read(request.scope["headers"]).token
        request.scope[identity.PRINCIPAL] = await app_context_of(request).who(token)
    permit(request, wanted)


def may_run(gateway: Services, principal: Principal, plugin: str, command: str) -> bool:
    reads = _reads(gateway, plugin, command)
    return scopes.allows_command(principal.scopes, plugin, reads=reads)


def _reads(gateway: Services, plugin: str, command: str) -> bool:
    """Whether the command changes nothing; one that is not there does not either."""
    loaded = gateway.compiled.registry.plugins.get(plugin)
    found = loaded.command(command) if loaded else None
    return found is None or found.type is CommandType.READ
