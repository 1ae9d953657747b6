"""For whoever keeps a gateway: its backups, and all that it does on one page."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import Refused, UsageError
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import flag_of, object_of, seconds, text_of
from ductile.http.responses import JsonResponse, gateway_of
from ductile.operations.backup import UNDER_WAY, check_target, room_at, target_for
from ductile.operations.overview import overview as overview_of

LONGEST_WAIT, BETWEEN_LOOKS = 20.0, 0.05


async def overview(request: Request) -> Response:
    """`GET /system/overview`: what runs, waits, failed and comes next."""
    return JsonResponse(await asyncio.to_thread(overview_of, gateway_of(request)))


async def backup(request: Request) -> Response:
    """`POST /system/backup` `{path?, replace?}`: begin one; 409 while another is being made.

    Only who has the local socket names a path: others would write files where they like.
    """
    gateway, body = gateway_of(request), await object_of(request)
    named, replace = text_of(body, "path"), flag_of(body, "replace")
    if named is not None and not access_of(request).local:
        raise Refused("a path can be named on the gateway's own machine alone")
    if named is not None and (not named.startswith("/") or "\0" in named):
        raise UsageError("path must be absolute")
    state = gateway.compiled.settings.state
    path = Path(named) if named is not None else None
    target = target_for(path, gateway.state_dir, state.path, gateway.clock.now())
    if flag_of(body, "dry_run"):
        check_target(target, replace=replace)
        free = await asyncio.to_thread(room_at, target.parent)
        return JsonResponse({"dry_run": True, "path": str(target), "free": free})
    started = await asyncio.to_thread(
        app_context_of(request).backups.start, target, replace=replace
    )
    return JsonResponse(started, status_code=202)


async def backup_state(request: Request) -> Response:
    """`GET /system/backup?wait=SECONDS`: the backup that is being made, or the last one."""
    backups = app_context_of(request).backups
    wait = seconds(request.query_params, "wait", LONGEST_WAIT)
    # No thread waits with it: those are for whoever reads.
    with suppress(TimeoutError):
        async with asyncio.timeout(wait):
            while backups.state()["state"] in UNDER_WAY:
                await asyncio.sleep(BETWEEN_LOOKS)
    return JsonResponse(backups.state())
