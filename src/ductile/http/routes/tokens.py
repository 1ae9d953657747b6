"""Tokens of the ledger: create, list, rotate and revoke them."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ductile.config.models.units import parse_duration
from ductile.core.values.scopes import find_unused
from ductile.engine.ingress.authenticator import hash_token, make_token
from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.responses import (
    JsonResponse,
    change_response,
    read_ledger,
    services_of,
    write_ledger,
)
from ductile.operations.reports import plugin_list
from ductile.store.access import tokens
from ductile.store.access.tokens import Budget

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, NewTokenBody, TokenRotationBody

MAX_LIFETIME = 100 * 366 * 86_400


async def list_tokens(request: Request) -> Response:
    """`GET /tokens`: List the ledger's tokens with their expiry times, without their secrets."""
    return JsonResponse({"tokens": await read_ledger(services_of(request), tokens.list_tokens)})


async def create_token(request: Request, body: NewTokenBody) -> Response:
    """`POST /tokens`: Create a token; the response contains its secret, which is shown once."""
    services = services_of(request)
    now, id, token = services.clock.now(), services.entropy.uuid(), make_token()
    known = {row["name"] for row in plugin_list.plugins(services.compiled, {})}
    lifetime, warnings = _duration(body.expires_in), list(find_unused(body.scopes, known))
    limits = None if body.budget is None else Budget(body.budget.runs, body.budget.retries)
    if body.dry_run:
        plan = {"name": body.name, "scopes": body.scopes, "warnings": warnings}
        return JsonResponse({"dry_run": True, **plan})
    created = await write_ledger(
        services,
        lambda tx: tokens.create_token(
            tx,
            id=id,
            name=body.name,
            hash=hash_token(token),
            scopes=body.scopes,
            expires_at=None if lifetime is None else now + lifetime,
            now=now,
            lease=body.lease,
            budget=limits,
        ),
    )
    app_context_of(request).tokens_changed()
    return JsonResponse({**created, "token": token, "warnings": warnings}, 201)


async def revoke_token(request: Request, body: ActionBody) -> Response:
    """`POST /token/{which}/revoke`: Revoke a token; it is refused from now on."""
    services, which = services_of(request), request.path_params["which"]
    now = services.clock.now()
    if body.dry_run:
        found = await read_ledger(services, lambda tx: tokens.check_revocable(tx, which))
        return change_response(found, dry_run=True)
    revoked = await write_ledger(services, lambda tx: tokens.revoke_token(tx, which, now))
    app_context_of(request).tokens_changed()
    return JsonResponse(revoked)


async def rotate_token(request: Request, body: TokenRotationBody) -> Response:
    """`POST /token/{which}/rotate`: Replace the secret of a token.

    The old one is void at once, or with `overlap` after that time.
    """
    services, which = services_of(request), request.path_params["which"]
    now, token, lifetime = services.clock.now(), make_token(), _duration(body.expires_in)
    end = None if lifetime is None else now + lifetime
    overlap = _duration(body.overlap, "overlap")
    if body.dry_run:
        found = await read_ledger(
            services,
            lambda tx: tokens.check_rotatable(tx, which, end, now, overlap=overlap is not None),
        )
        return change_response(found, dry_run=True)
    rotated = await write_ledger(
        services,
        lambda tx: tokens.rotate_token(
            tx,
            which,
            hash=hash_token(token),
            expires_at=end,
            now=now,
            old_until=None if overlap is None else now + overlap,
        ),
    )
    app_context_of(request).tokens_changed()
    return JsonResponse({**rotated, "token": token})


def _duration(text: str | None, field: str = "expires_in") -> timedelta | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{field} {error}, such as 12h or 30d") from None
    if not 0 < seconds <= MAX_LIFETIME:
        raise UsageError(f"{field} must be positive and at most a hundred years")
    return timedelta(seconds=seconds)
