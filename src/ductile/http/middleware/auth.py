"""Access control of the local socket and the API listener.

`AccessControl` is the only place that decides who may call which endpoint. The middleware asks it
before routing, the route table before a handler runs, and the fast path before it takes a request.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from ductile._fast_dataclass import dataclass
from ductile.core.values import scopes
from ductile.engine.ingress.auth import LOCAL, Principal, Session
from ductile.errors import DuctileError
from ductile.http.middleware.caller import address_of
from ductile.http.middleware.context import AppContext
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
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOST = re.compile(r"(?:\[(?P<address>[^\]%]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::[0-9]{0,5})?")
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
UI_HEADER = b"x-ductile-ui"
"""Pages of other sites cannot send this header without the gateway's permission."""
SECURE_SESSION_COOKIE = "__Host-ductile_session"
"""The session's cookie over TLS, where browsers bind the prefix to the host."""
CORS_METHODS = b"GET, POST, DELETE, OPTIONS"
CORS_HEADERS = b"Authorization, Content-Type, Idempotency-Key, Last-Event-ID"


class WrongHost(DuctileError):
    code = "wrong_host"
    http_status = 421


class ForeignOrigin(DuctileError):
    code = "foreign_origin"
    http_status = 403


class CrossSiteRequest(DuctileError):
    code = "cross_site_request"
    http_status = 403


class Unauthorized(DuctileError):
    code = "unauthorized"
    http_status = 401


class MissingScope(DuctileError):
    code = "forbidden"
    http_status = 403


class NeedsMiddleware(DuctileError):
    """The fast path cannot decide: the ledger's tokens must be read, or CORS headers added."""


@dataclass(frozen=True, slots=True)
class RequestIdentity:
    """The headers that access depends on; None if a header is absent or repeated."""

    host: str | None
    origin: str | None
    """A repeated Origin is the empty string, which no configuration allows."""
    token: str | None
    has_authorization: bool = False
    """Whether there is any Authorization header: it rules the session cookie out."""
    cookies: bytes = b""

    def session_cookies(self, names: Collection[str]) -> list[str]:
        """The cookies of these names, if there is no Authorization header.

        A browser that used the page over HTTP and TLS has both; a repeated name is void.
        """
        if self.has_authorization or not self.cookies:
            return []
        found: dict[str, list[str]] = {name: [] for name in names}
        for part in self.cookies.decode("latin-1").split(";"):
            name, _, value = part.strip().partition("=")
            if name in found:
                found[name].append(value)
        return [values[0] for values in found.values() if len(values) == 1 and values[0]]


def read_identity(headers: Iterable[tuple[bytes, bytes]]) -> RequestIdentity:
    host = origin = token = None
    hosts = origins = tokens = 0
    cookies = b""
    for name, value in headers:
        if name == b"host":
            host, hosts = value.decode("latin-1"), hosts + 1
        elif name == b"origin":
            origin, origins = value.decode("latin-1"), origins + 1
        elif name == b"authorization":
            token, tokens = _bearer_token(value), tokens + 1
        elif name == b"cookie":
            cookies = cookies + b";" + value if cookies else value
    return RequestIdentity(
        host if hosts == 1 else None,
        origin if origins <= 1 else "",
        token if tokens == 1 else None,
        tokens > 0,
        cookies,
    )


def _bearer_token(value: bytes) -> str | None:
    scheme, _, token = value.decode("latin-1").strip().partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


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
            raise error or Unauthorized("a valid bearer token is required")
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
            raise MissingScope(f"this token does not have the scope {required}", scope=required)

    def authorize_command(
        self, scope: AsgiScope, plugin: str, command: str, registry: Registry | None = None
    ) -> None:
        """Raise as `authorize` does, unless the caller may run the command of this plugin.

        The plugins in force decide what the command is, or those of another `registry`.
        """
        if self.local:
            return
        reads = _is_read_command(registry or self._services.compiled.registry, plugin, command)
        if not scopes.allows_command(self.require_principal(scope).scopes, plugin, reads=reads):
            required = scopes.scope_of_command(plugin, reads=reads)
            raise MissingScope(f"this token does not have the scope {required}", scope=required)

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


def plain_session_cookie(scope: AsgiScope) -> str:
    """Return the name of the session's cookie over HTTP.

    It contains the listener's port, because the gateways of one host share its cookies.
    """
    _, port = scope.get("server") or ("", 0)
    return f"ductile_session_{port}"


def session_of(request: Request) -> Session | None:
    """Return the dashboard's session that authenticates the request."""
    return request.scope.get(SESSION)


def check_same_site(scope: AsgiScope) -> None:
    """Raise `CrossSiteRequest` unless the dashboard's own page sends the request."""
    headers = scope["headers"]
    identity = read_identity(headers)
    own = {f"{scheme}://{(identity.host or '').lower()}" for scheme in ("http", "https")}
    if identity.origin is None or identity.origin.lower() not in own:
        raise CrossSiteRequest("this request must come from the gateway's own page")
    if [value for name, value in headers if name == UI_HEADER] != [b"1"]:
        raise CrossSiteRequest("this request must have the header X-Ductile-UI: 1")


def check_host(
    identity: RequestIdentity, scope: AsgiScope, listen: str, allowed: Collection[str]
) -> None:
    """Raise `WrongHost` unless the Host is the listener's own address or an allowed one.

    This stops DNS rebinding: a page whose own name resolves to this address sends that name.
    """
    name = _host_name(identity.host or "")
    server = scope.get("server") or ("", 0)
    own = {listen, str(server[0])} - {"0.0.0.0", "::", ""}
    if is_loopback(str(server[0])):
        own |= LOOPBACK_NAMES
    if not name or not (name in own or _is_listed(name, allowed)):
        raise WrongHost("this gateway does not serve the requested host; see allowed_hosts")


@lru_cache(maxsize=1024)
def _host_name(host: str) -> str:
    """Return the name without port, brackets and final dot; empty if the syntax is not valid."""
    found = HOST.fullmatch(host)
    if found is None:
        return ""
    if found["name"] is not None:
        return found["name"].rstrip(".").lower()
    try:
        return str(IPv6Address(found["address"]))
    except ValueError:
        return ""


def _is_listed(name: str, allowed: Collection[str]) -> bool:
    for entry in map(str.lower, allowed):
        if entry == "*" or _host_name(entry) == name:
            return True
        if entry.startswith("*.") and name.endswith(entry[1:]):
            return True
    return False


def check_origin(identity: RequestIdentity, allowed: Collection[str]) -> bool:
    """Return whether the request is from a page of an allowed origin.

    Raises `ForeignOrigin` for a page of any other origin but the listener's own.
    """
    if identity.origin is None:
        return False
    if identity.origin in allowed or (identity.origin and "*" in allowed):
        return True
    scheme, _, place = identity.origin.partition("://")
    if scheme in ("http", "https") and place and place.lower() == (identity.host or "").lower():
        return False
    raise ForeignOrigin("pages of this origin may not call the gateway; see allowed_origins")


@lru_cache(maxsize=1024)
def is_loopback(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def is_from_this_machine(scope: AsgiScope) -> bool:
    client = scope.get("client")
    return client is None or is_loopback(str(client[0]))
