"""Schedules and breakers, for operators."""

from __future__ import annotations

import asyncio
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.errors import NotFound
from ductile.http.answers import JsonResponse, gateway_of, reading, writing
from ductile.runtime import agenda
from ductile.store import breakers, schedules


async def listing(request: Request) -> Response:
    """`GET /scheduler/jobs`: every entry, its next run and its state."""
    gateway = gateway_of(request)
    rows = await asyncio.to_thread(
        agenda.listing,
        gateway.blueprint,
        gateway.unready,
        gateway.ledger,
        gateway.clock.now(),
    )
    return JsonResponse({"schedules": rows})


async def pause(request: Request) -> Response:
    return await _set_paused(request, paused=True)


async def resume(request: Request) -> Response:
    return await _set_paused(request, paused=False)


async def _set_paused(request: Request, *, paused: bool) -> Response:
    gateway = gateway_of(request)
    plugin, id = request.path_params["plugin"], request.path_params["schedule"]
    found = await writing(gateway, lambda tx: schedules.pause(tx, plugin, id, paused=paused))
    if not found:
        raise NotFound(f"there is no schedule {plugin}/{id}")
    await asyncio.to_thread(gateway.scheduler.refresh)
    gateway.loops["scheduler"].wake()
    return JsonResponse({"plugin": plugin, "schedule": id, "paused": paused})


async def breaker(request: Request) -> Response:
    """`GET /system/breaker/{plugin}`: its state and its history."""
    gateway, plugin = gateway_of(request), request.path_params["plugin"]

    def work(tx: Any) -> dict[str, Any]:
        return {
            "plugin": plugin,
            "breakers": tx.dicts("breakers", plugin=plugin),
            "transitions": tx.dicts("breaker_transitions", plugin=plugin, limit=100),
        }

    return JsonResponse(await reading(gateway, work))


async def reset(request: Request) -> Response:
    """`POST /system/reset/{plugin}`: close its breakers."""
    gateway, plugin = gateway_of(request), request.path_params["plugin"]
    if plugin not in gateway.blueprint.settings.plugins and plugin not in gateway.blueprint.plans:
        raise NotFound(f"there is no plugin {plugin!r}")
    now = gateway.clock.now()
    commands = await writing(gateway, lambda tx: breakers.reset(tx, plugin, now))
    return JsonResponse({"status": "ok", "plugin": plugin, "closed": commands})
