"""Access control of the local socket and the API listener.

`AccessControl` is the only place that decides who may call which endpoint. The middleware asks it
before routing, the route table before a handler runs, and the fast path before it takes a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ductile.core.values import scopes
from ductile.engine.ingress.authenticator import LOCAL, Principal, Session
from ductile.errors import DuctileError
from ductile.http.middleware.caller import address_of
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.source import (
    SECURE_SESSION_COOKIE,
    RequestIdentity,
    check_host,
    check_origin,
    check_same_site,
    plain_session_cookie,
    read_identity,
)
from ductile.http.responses import JsonResponse, refusal_response
from ductile.plugins.manifest import CommandType
from ductile.plugins.registry import Registry

if TYPE_CHECKING:
    from ductile.http.endpoint import Endpoint
    from ductile.http.middleware.fast_path import FastPath
    from ductile.http.middleware.router import PathRouter
    from ductile.http.routes.relay_ingress import RelayIngress

AsgiScope = Any
"""The ASGI server's description of a request; unrelated to the scopes of a token."""
PRINCIPAL = "ductile.principal"
"""ASGI scope key: the caller, or None if the token is missing or wrong."""
AUTH_ERROR = "ductile.auth_error"
"""ASGI scope key: the error that kept the token or the session from being checked."""
SESSION = "ductile.session"
"""ASGI scope key: the dashboard's session, if the request is authenticated by its cookie."""
ENDPOINT = "ductile.endpoint"
"""ASGI scope key: the row of the route table that serves the request."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
CORS_METHODS = b"GET, POST, DELETE, OPTIONS"
CORS_HEADERS = b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID"


class Unauthorized(DuctileError):
    code = "unauthorized"
    http_status = 401


class MissingScope(DuctileError):
    code = "forbidden"
    http_status = 403


class NeedsMiddleware(DuctileError):
    """The fast path cannot decide: the ledger's tokens must be read, or CORS headers added."""


class AccessControl:
    """The decisions for one listener; on the local socket the file mode has decided already."""

    def __init__(self, app_context: AppContext, *, local: bool) -> None:
        self.local = local
        self._app_context, self._services = app_context, app_context.services

    def check_source(self, identity: RequestIdentity, scope: AsgiScope) -> bool:
        """Return whether the caller is a page of an allowed origin, which needs CORS headers.

        Raises `WrongHost` and `ForeignOrigin`.
        """
        if self.local:
            return False
        api = self._services.compiled.settings.api
        check_host(identity, scope, api.address[0], api.hosts)
        return check_origin(identity, api.allowed_origins)

    async def authenticate(self, scope: AsgiScope) -> None:
        """Store the caller in the ASGI scope, reading the ledger's tokens if they are stale."""
        identity = read_identity(scope["headers"])
        scope.pop(AUTH_ERROR, None)
        scope.pop(SESSION, None)
        try:
            scope[PRINCIPAL] = await self._token_principal(identity.token, scope)
            for cookie in self._session_cookies(identity, scope):
                if scope[PRINCIPAL] is None:
                    scope[PRINCIPAL] = await self._session_principal(cookie, scope)
        except DuctileError as error:
            # Public endpoints stay available; `authorize` raises this error for the others.
            scope[PRINCIPAL], scope[AUTH_ERROR] = None, error

    def _session_cookies(self, identity: RequestIdentity, scope: AsgiScope) -> list[str]:
        if not self._services.compiled.settings.api.ui:
            return []
        return identity.session_cookies((SECURE_SESSION_COOKIE, plain_session_cookie(scope)))

    async def _token_principal(self, token: str | None, scope: AsgiScope) -> Principal | None:
        """Return the owner of the token; raises `TooManyFailedLogins`."""
        principal = await self._app_context.principal_of(token)
        if token is not None:
            valid = principal is not None
            self._app_context.logins.judge(address_of(scope), token, valid=valid)
        return principal

    async def _session_principal(self, cookie: str, scope: AsgiScope) -> Principal | None:
        """Return the owner of the session; raises `CrossSiteRequest`."""
        session = await self._app_context.session_of(cookie)
        if session is None:
            return None
        if scope["method"] not in SAFE_METHODS:
            check_same_site(scope)
        scope[SESSION] = session
        return session.principal

    def principal(self, scope: AsgiScope) -> Principal | None:
        """Return the caller; None if it is unknown."""
        return LOCAL if self.local else scope.get(PRINCIPAL)

    def require_principal(self, scope: AsgiScope) -> Principal:
        principal = self.principal(scope)
        if principal is None:
            error: DuctileError | None = scope.get(AUTH_ERROR)
            raise error or Unauthorized(_describe_login(scope))
        return principal

    def authorize(
        self, scope: AsgiScope, endpoint: Endpoint, path_params: Mapping[str, str]
    ) -> None:
        """Raise `Unauthorized` without a valid token, `MissingScope` without the scope."""
        required = endpoint.token_scope
        if self.local or required is None or self._is_public(endpoint):
            return
        principal = self.require_principal(scope)
        if required == scopes.PLUGIN:
            self.authorize_command(scope, path_params["plugin"], path_params["command"])
        else:
            self.require_scope(principal, required)

    def require_scope(self, principal: Principal, required: str) -> None:
        """Raise `MissingScope` if the caller has not this scope."""
        if not scopes.allows(principal.scopes, required):
            raise missing_scope(principal, required)

    def authorize_command(
        self, scope: AsgiScope, plugin: str, command: str, registry: Registry | None = None
    ) -> None:
        """Raise as `authorize` does, unless the caller may run the command of this plugin.

        The plugins in force decide what the command is, or those of another `registry`.
        """
        if self.local:
            return
        reads = _is_read_command(registry or self._services.compiled.registry, plugin, command)
        principal = self.require_principal(scope)
        if not scopes.allows_command(principal.scopes, plugin, reads=reads):
            raise missing_scope(principal, scopes.scope_of_command(plugin, reads=reads))

    def admit(self, scope: AsgiScope, endpoint: Endpoint, path_params: Mapping[str, str]) -> None:
        """Take every decision at once and without waiting; raises what refuses the request.

        Raises `NeedsMiddleware` if only the middleware can decide.
        """
        identity = read_identity(scope["headers"])
        if self.check_source(identity, scope):
            raise NeedsMiddleware("the response needs CORS headers")
        if not (self.local or self._is_public(endpoint)):
            authenticator, token = self._app_context.authenticator, identity.token
            if token is not None and authenticator.is_stale(token):
                raise NeedsMiddleware("the ledger's tokens have to be read")
            principal = None if token is None else authenticator.identify(token)
            if principal is not None and token is not None:
                self._app_context.logins.judge(address_of(scope), token, valid=True)
            scope[PRINCIPAL] = principal
        self.authorize(scope, endpoint, path_params)

    def _is_public(self, endpoint: Endpoint) -> bool:
        settings = self._services.compiled.settings
        return endpoint.is_public is not None and endpoint.is_public(settings)


def _describe_login(scope: AsgiScope) -> str:
    required = "a valid bearer token is required"
    if read_identity(scope["headers"]).token is None:
        return required
    return (
        f"{required}; this one is unknown, expired or revoked; an operator sees which: "
        "ductile token list"
    )


def missing_scope(principal: Principal, required: str) -> MissingScope:
    name = quote(f"{principal.name}-2")
    granted = quote(",".join(sorted({*principal.scopes, required})))
    return MissingScope(
        f"this token does not have the scope {required}; an operator can create one that has it "
        f"as well: ductile token create {name} --scopes {granted}",
        scope=required,
    )


def _is_read_command(registry: Registry, plugin: str, command: str) -> bool:
    """Return whether the command changes nothing; a command that is not in the registry cannot."""
    loaded = registry.plugins.get(plugin)
    found = loaded.command(command) if loaded else None
    return found is None or found.type is CommandType.READ


class AuthMiddleware:
    """The API listener's application.

    It checks Host and Origin, then hands relayed events to relay ingress, which verifies the
    peer's signature, and everything else, with the caller in the ASGI scope, to the router.
    """

    def __init__(
        self, router: PathRouter, access: AccessControl, relay: RelayIngress, fast_path: FastPath
    ) -> None:
        self._router, self._access, self._relay = router, access, relay
        self.fast_path = fast_path

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        identity = read_identity(scope["headers"])
        try:
            if self._access.check_source(identity, scope):
                assert identity.origin is not None
                send = _with_cors_headers(send, identity.origin.encode("latin-1"))
                if scope["method"] == "OPTIONS":
                    await JsonResponse(None, 204)(scope, receive, send)
                    return
        except DuctileError as error:
            await refusal_response(error, scope["path"])(scope, receive, send)
            return
        if self._relay.handles(scope["path"]):
            await self._relay(scope, receive, send)
            return
        await self._access.authenticate(scope)
        await self._router(scope, receive, send)


def _with_cors_headers(send: Any, origin: bytes) -> Any:
    """Return a `send` that lets pages of this origin read the response."""

    async def send_with_headers(message: Any) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [
                *message["headers"],
                (b"access-control-allow-origin", origin),
                (b"access-control-allow-methods", CORS_METHODS),
                (b"access-control-allow-headers", CORS_HEADERS),
                (b"vary", b"Origin"),
            ]
        await send(message)

    return send_with_headers


def access_of(request: Request) -> AccessControl:
    access: AccessControl = request.app.state.access
    return access


def principal_of(request: Request) -> Principal | None:
    """Return the caller; None if it is unknown."""
    return access_of(request).principal(request.scope)


def authorize(request: Request) -> None:
    """Check the caller against the request's endpoint."""
    access_of(request).authorize(request.scope, request.scope[ENDPOINT], request.path_params)


def has_scope(request: Request, wanted: str) -> bool:
    """Return whether the caller of an admitted request has this scope as well."""
    access = access_of(request)
    return access.local or scopes.allows(access.require_principal(request.scope).scopes, wanted)


def require_scope(request: Request, required: str) -> None:
    """Raise `MissingScope` if the caller of an admitted request has not this scope as well."""
    access = access_of(request)
    if not access.local:
        access.require_scope(access.require_principal(request.scope), required)


async def reauthorize(request: Request) -> None:
    """Check again: the token may have expired or been revoked while the request was served."""
    access = access_of(request)
    if not access.local:
        await access.authenticate(request.scope)
    authorize(request)


def session_of(request: Request) -> Session | None:
    """Return the dashboard's session that authenticates the request."""
    return request.scope.get(SESSION)
