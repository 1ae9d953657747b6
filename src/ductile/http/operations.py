"""For whoever keeps a gateway: its backups, and all that it does on one page."""

from __future__ import annotations

import asyncio
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import Refused, UsageError
from ductile.http.answers import JsonResponse, gateway_of, object_of
from ductile.http.jobs import text_of
from ductile.runtime.backup import check_target, room_at, target_for
from ductile.runtime.overview import overview as overview_of

LONGEST_WAIT = 20.0


async def overview(request: Request) -> Response:
    """`GET /system/overview`: what runs, waits, failed and comes next."""
    return JsonResponse(await asyncio.to_thread(overview_of, gateway_of(request)))


async def backup(request: Request) -> Response:
    """`POST /system/backup` `{path?, replace?}`: begin one; 409 while another is being made.

    Only who has the local socket names a path: others would write files where they like.
    """
    gateway, body = gateway_of(request), await object_of(request)
    named, replace = text_of(body, "path"), body.get("replace", False)
    if type(replace) is not bool:
        raise UsageError("replace must be true or false")
    if named is not None and not request.app.state.local:
        raise Refused("a path can be named on the gateway's own machine alone")
    if named is not None and (not named.startswith("/") or "\0" in named):
        raise UsageError("path must be absolute")
    state = gateway.blueprint.settings.state
    path = Path(named) if named is not None else None
    target = target_for(path, gateway.state_dir, state.path, gateway.clock.now())
    if body.get("dry_run"):
        check_target(target, replace=replace)
        free = await asyncio.to_thread(room_at, target.parent)
        return JsonResponse({"dry_run": True, "path": str(target), "free": free})
    started = await asyncio.to_thread(gateway.backups.start, target, replace=replace)
    return JsonResponse(started, status_code=202)


async def backup_state(request: Request) -> Response:
    """`GET /system/backup?wait=SECONDS`: the backup that is being made, or the last one."""
    text = request.query_params.get("wait", "0")
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError("wait must be a whole number of seconds")
    seconds = min(int(text), LONGEST_WAIT)
    return JsonResponse(await asyncio.to_thread(gateway_of(request).backups.wait, seconds))
