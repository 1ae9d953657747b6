"""The dashboard: its page and files, which contain nothing about this gateway, and its sessions."""

from __future__ import annotations

import mimetypes
import os
import secrets
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

import ductile
from ductile.clock import to_text
from ductile.engine.config.compile_schedules import local_zone
from ductile.engine.ingress.authenticator import LOCAL, Session, hash_token
from ductile.errors import NotFound, Refused, UsageError
from ductile.http.middleware.audit import name_actor
from ductile.http.middleware.auth import (
    Unauthorized,
    access_of,
    principal_of,
    session_of,
)
from ductile.http.middleware.caller import address_of
from ductile.http.middleware.context import app_context_of
from ductile.http.middleware.source import (
    SECURE_SESSION_COOKIE,
    check_same_site,
    plain_session_cookie,
)
from ductile.http.responses import JsonResponse, services_of, write_ledger
from ductile.store.access import ui_sessions

if TYPE_CHECKING:
    from ductile.http.models.bodies import LoginBody

PAGE = "index.html"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
IMMUTABLE = "public, max-age=31536000, immutable"
"""The names of assets contain a hash of their content."""


async def redirect_to_page(request: Request) -> Response:
    """`GET /ui`: Redirect to the dashboard."""
    _check_enabled(request)
    return RedirectResponse("/ui/", 308, HEADERS)


async def show_page(request: Request) -> Response:
    """`GET /ui/`: Show the dashboard; it asks for a token."""
    _check_enabled(request)
    return _file(PAGE, "no-cache")


async def show_asset(request: Request) -> Response:
    """`GET /ui/assets/{name}`: Return a script, a style sheet or an image of the dashboard."""
    _check_enabled(request)
    return _file(f"assets/{request.path_params['name']}", IMMUTABLE)


async def open_session(request: Request, body: LoginBody) -> Response:
    """`POST /ui/session`: Open a session with a token, or with a code of `ductile ui`."""
    _check_enabled(request)
    check_same_site(request.scope)
    services, context = services_of(request), app_context_of(request)
    if (body.token is None) == (body.code is None):
        raise UsageError("the body must have either a token or a code")
    if body.token is None:
        valid = context.login_codes.redeem(body.code or "")
        context.logins.judge(address_of(request.scope), body.code or "", valid=valid)
        if not valid:
            raise Unauthorized("the code has been used or has expired; run `ductile ui` again")
        principal, token_hash = LOCAL, None
    else:
        found = await context.principal_of(body.token)
        valid = found is not None
        context.logins.judge(address_of(request.scope), body.token, valid=valid)
        if found is None:
            raise Unauthorized("the token is not valid")
        principal, token_hash = found, hash_token(body.token)
    name_actor(principal)
    cookie, now = secrets.token_urlsafe(32), services.clock.now()
    stored = await write_ledger(
        services,
        lambda tx: ui_sessions.open_session(tx, hash_token(cookie), token_hash, now),
    )
    context.tokens_changed()
    response = JsonResponse(_describe(request, Session(stored, principal, needs_touch=False)))
    _set_cookie(request, response, cookie)
    return response


async def show_session(request: Request) -> Response:
    """`GET /ui/session`: Show the caller's session: its name, its scopes and its end."""
    return JsonResponse(_describe(request, session_of(request)))


async def close_session(request: Request) -> Response:
    """`DELETE /ui/session`: End the caller's session."""
    session = session_of(request)
    if session is None:
        raise UsageError("this request is not authenticated by a session")
    hash = session.stored.hash
    await write_ledger(services_of(request), lambda tx: ui_sessions.close_session(tx, hash))
    app_context_of(request).tokens_changed()
    response = JsonResponse({"closed": True})
    for name in (plain_session_cookie(request.scope), SECURE_SESSION_COOKIE):
        _delete_cookie(response, name)
    return response


async def close_sessions(request: Request) -> Response:
    """`DELETE /ui/sessions`: End the sessions of all users."""
    count = await write_ledger(services_of(request), ui_sessions.close_all)
    app_context_of(request).tokens_changed()
    return JsonResponse({"closed": count})


async def create_login_code(request: Request) -> Response:
    """`POST /ui/code`: Create a one-use code that opens a session; local socket only."""
    _check_enabled(request)
    if not access_of(request).local:
        raise Refused("login codes are created over the local socket only: run `ductile ui`")
    api = services_of(request).compiled.settings.api
    if not api.enabled:
        raise Refused(
            "the API is not enabled, so there is no dashboard; set api.enabled: true",
            run="ductile config set api.enabled true && ductile system reload",
        )
    code = app_context_of(request).login_codes.create()
    # A fragment is not sent to servers, so that no log of a proxy contains the code.
    return JsonResponse({"code": code, "url": f"{_base_url(*api.address)}/ui/#code={code}"}, 201)


def _base_url(host: str, port: int) -> str:
    """Return the address at which a browser on this machine finds the listener."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _check_enabled(request: Request) -> None:
    if not services_of(request).compiled.settings.api.ui:
        raise NotFound(
            "the dashboard is disabled; see api.ui",
            run="ductile config set api.ui true && ductile system reload",
        )


@cache
def _read(name: str) -> bytes | None:
    """Return a file of the build; None if there is none of that name."""
    folder = files("ductile.http").joinpath("static", "ui")
    found = next((each for each in _list(folder) if each[0] == name), None)
    return None if found is None else found[1].read_bytes()


def _list(folder: Any, prefix: str = "") -> list[tuple[str, Any]]:
    entries: list[tuple[str, Any]] = []
    for entry in folder.iterdir():
        if entry.is_dir():
            entries += _list(entry, f"{prefix}{entry.name}/")
        else:
            entries.append((prefix + entry.name, entry))
    return entries


def _file(name: str, cache_control: str) -> Response:
    content = _read(name)
    if content is None:
        raise NotFound("the dashboard has no such file")
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(content, 200, {**HEADERS, "Cache-Control": cache_control}, kind)


def _set_cookie(request: Request, response: Response, cookie: str) -> None:
    # The page's own scheme: a proxy may end TLS before the gateway.
    secure = request.headers.get("origin", "").startswith("https://")
    plain = plain_session_cookie(request.scope)
    name, other = (SECURE_SESSION_COOKIE, plain) if secure else (plain, SECURE_SESSION_COOKIE)
    # The other cookie is that of an earlier session under the other scheme.
    _delete_cookie(response, other)
    response.set_cookie(
        name,
        cookie,
        max_age=int(ui_sessions.TOTAL_LIMIT.total_seconds()),
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


def _delete_cookie(response: Response, name: str) -> None:
    response.delete_cookie(name, secure=name == SECURE_SESSION_COOKIE, httponly=True)


def _describe(request: Request, session: Session | None) -> dict[str, Any]:
    principal = session.principal if session else principal_of(request)
    assert principal is not None, "access control admits only known callers"
    settings = services_of(request).compiled.settings
    return {
        "name": principal.name,
        "scopes": sorted(principal.scopes),
        "expires_at": to_text(session.stored.expires_at()) if session else None,
        "gateway": {
            "name": settings.service.name,
            "version": ductile.__version__,
            "timezone": local_zone(os.environ).key,
        },
    }
