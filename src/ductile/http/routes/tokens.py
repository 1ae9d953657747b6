"""Tokens of the ledger: made, shown once, listed, rotated, revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.config.models.units import parse_duration
from ductile.core.values.scopes import find_unused, is_scope
from ductile.engine.ingress.auth import hash_token, make_token
from ductile.errors import UsageError
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import flag_of, is_dry, object_of, text_of
from ductile.http.responses import JsonResponse, gateway_of, reading, writing
from ductile.operations import status
from ductile.store import tokens

LONGEST_NAME = 100
LONGEST_LIFE = 100 * 366 * 86_400


async def listing(request: Request) -> Response:
    """`GET /tokens`: those of the ledger, with their ends; never a secret."""
    return JsonResponse({"tokens": await reading(gateway_of(request), tokens.listing)})


async def create(request: Request) -> Response:
    """`POST /tokens` `{name, scopes, expires_in?}`: the answer holds the token, this once."""
    gateway, body = gateway_of(request), await object_of(request)
    name, scopes = text_of(body, "name"), body.get("scopes")
    if name is None or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(f"name must be a text of 1 to {LONGEST_NAME} characters")
    if not isinstance(scopes, list) or not scopes:
        raise UsageError("scopes must be a list of scopes")
    for scope in scopes:
        if not isinstance(scope, str) or not is_scope(scope):
            raise UsageError(
                f"{scope!r} is no scope; allowed: *, or a noun or plugin with :ro, :rw"
            )
    now, id, token = gateway.clock.now(), gateway.entropy.uuid(), make_token()
    known = {row["name"] for row in status.plugins(gateway.compiled, {})}
    life, warnings = _life(body), list(find_unused(scopes, known))
    if flag_of(body, "dry_run"):
        planned = {"dry_run": True, "name": name, "scopes": scopes, "warnings": warnings}
        return JsonResponse(planned)
    made = await writing(
        gateway,
        lambda tx: tokens.create(
            tx,
            id=id,
            name=name,
            hash=hash_token(token),
            scopes=scopes,
            expires_at=None if life is None else now + life,
            now=now,
        ),
    )
    app_context_of(request).tokens_changed()
    return JsonResponse({**made, "token": token, "warnings": warnings}, 201)


async def revoke(request: Request) -> Response:
    """`POST /token/{id or name}/revoke`: it opens nothing from now on."""
    gateway, which = gateway_of(request), request.path_params["which"]
    now = gateway.clock.now()
    if await is_dry(request):
        found = await reading(gateway, lambda tx: tokens.find(tx, which))
        return JsonResponse({**found, "dry_run": True})
    done = await writing(gateway, lambda tx: tokens.revoke(tx, which, now))
    app_context_of(request).tokens_changed()
    return JsonResponse(done)


async def rotate(request: Request) -> Response:
    """`POST /token/{id or name}/rotate` `{expires_in?}`: another secret, the old one is void."""
    gateway, which = gateway_of(request), request.path_params["which"]
    body, now, token = await object_of(request), gateway.clock.now(), make_token()
    life = _life(body)
    end = None if life is None else now + life
    if flag_of(body, "dry_run"):
        found = await reading(gateway, lambda tx: tokens.rotatable(tx, which, end, now))
        return JsonResponse({**found, "dry_run": True})
    done = await writing(
        gateway,
        lambda tx: tokens.rotate(tx, which, hash=hash_token(token), expires_at=end, now=now),
    )
    app_context_of(request).tokens_changed()
    return JsonResponse({**done, "token": token})


def _life(body: dict[str, Any]) -> timedelta | None:
    text = text_of(body, "expires_in")
    if text is None:
        return None
    try:
        seconds = parse_duration(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"expires_in: {error}") from None
    if not 0 < seconds <= LONGEST_LIFE:
        raise UsageError("expires_in must be more than nothing and at most a hundred years")
    return timedelta(seconds=seconds)
