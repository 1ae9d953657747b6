"""Schedules and breakers, for operators."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.clock import from_text
from ductile.engine.services import Services
from ductile.errors import NotFound
from ductile.http.requests import is_dry, moment, whole
from ductile.http.responses import JsonResponse, gateway_of, reading, writing
from ductile.operations import schedule_report
from ductile.operations.schedules import set_paused
from ductile.store import breakers, reminders
from ductile.store.engines.api import Tx

FIRES, MOST_FIRES = 20, 1000
MOST_REMINDERS = 1000
"""Shown beside the schedules; `GET /gateway/cron` has all."""


def _boot(gateway: Services) -> datetime | None:
    """When the scheduler that decides began; None where no gateway runs."""
    return gateway.scheduler.boot if gateway.loops else None


async def listing(request: Request) -> Response:
    """`GET /scheduler/jobs`: every entry, its next run and its state; and agents' reminders."""
    gateway = gateway_of(request)
    rows = await asyncio.to_thread(
        schedule_report.listing,
        gateway.compiled,
        gateway.unready,
        gateway.ledger,
        gateway.clock.now(),
        _boot(gateway),
    )
    kept = await reading(
        gateway, lambda tx: reminders.listing(tx, limit=MOST_REMINDERS, payloads=False)
    )
    return JsonResponse({"schedules": rows, "reminders": [_without_payload(one) for one in kept]})


def _without_payload(reminder: dict[str, Any]) -> dict[str, Any]:
    """What is told to whoever may see schedules; the rest is between agents."""
    return {key: value for key, value in reminder.items() if key != "payload"}


async def coming(request: Request) -> Response:
    """`GET /scheduler/next?name=plugin[/id]&count=20`: the exact coming fires."""
    gateway, query = gateway_of(request), request.query_params
    entries = schedule_report.find(gateway.compiled, query.get("name", ""))
    fires = await asyncio.to_thread(
        schedule_report.next_fires_of_all,
        entries,
        gateway.ledger,
        gateway.clock.now(),
        whole(query, "count", least=1, most=MOST_FIRES) or FIRES,
        _boot(gateway),
    )
    return JsonResponse({"fires": fires})


async def explain(request: Request) -> Response:
    """`GET /scheduler/explain?name=plugin[/id]&since=TIME`: every slot, and why it did not fire."""
    gateway, query = gateway_of(request), request.query_params
    now, since = gateway.clock.now(), moment(query, "since")
    back = timedelta(days=1) if since is None else now - from_text(since)
    entries = schedule_report.find(gateway.compiled, query.get("name", ""))

    def work() -> list[dict[str, Any]]:
        slots = [
            slot
            for entry in entries
            for slot in schedule_report.explain(entry, gateway.ledger, now, back=back)
        ]
        return sorted(slots, key=lambda slot: (slot["slot"], slot["schedule"]))

    return JsonResponse({"slots": await asyncio.to_thread(work)})


async def pause(request: Request) -> Response:
    """`POST /scheduler/{plugin}/{schedule}/pause`: it fires no more until it is resumed."""
    return await _set_paused(request, paused=True)


async def resume(request: Request) -> Response:
    """`POST /scheduler/{plugin}/{schedule}/resume`: it fires again, as its rule says."""
    return await _set_paused(request, paused=False)


async def _set_paused(request: Request, *, paused: bool) -> Response:
    gateway = gateway_of(request)
    plugin, id = request.path_params["plugin"], request.path_params["schedule"]
    (schedule,) = schedule_report.find(gateway.compiled, f"{plugin}/{id}")
    body = {"plugin": plugin, "schedule": id, "paused": paused}
    if await is_dry(request):
        return JsonResponse({**body, "dry_run": True})
    now = gateway.clock.now()
    await writing(gateway, lambda tx: set_paused(tx, schedule, now, paused=paused))
    if gateway.loops:
        await asyncio.to_thread(gateway.scheduler.refresh)
        gateway.loops["scheduler"].wake()
    return JsonResponse(body)


def _breakers(tx: Tx, gateway: Services, plugin: str) -> list[dict[str, Any]]:
    """Those of a plugin; one that is gone may have left some. `NotFound` where nobody knows it."""
    rows, compiled = tx.dicts("breakers", plugin=plugin), gateway.compiled
    if not rows and plugin not in compiled.settings.plugins and plugin not in compiled.plans:
        raise NotFound(f"there is no plugin {plugin!r}")
    return rows


async def breaker(request: Request) -> Response:
    """`GET /system/breaker/{plugin}`: its state and its history."""
    gateway, plugin = gateway_of(request), request.path_params["plugin"]

    def work(tx: Tx) -> dict[str, Any]:
        rows = {row["command"]: row for row in _breakers(tx, gateway, plugin)}
        for entry in gateway.compiled.schedules:
            if entry.plugin == plugin:
                rows.setdefault(entry.command, _never_failed(plugin, entry.command))
        return {
            "plugin": plugin,
            "breakers": list(rows.values()),
            "transitions": tx.dicts("breaker_transitions", plugin=plugin, limit=100),
        }

    return JsonResponse(await reading(gateway, work))


def _never_failed(plugin: str, command: str) -> dict[str, Any]:
    absent = ("opened_at", "last_failure_at", "last_job_id", "probe_job_id", "updated_at")
    row = {"plugin": plugin, "command": command, "state": "closed", "failure_count": 0}
    return {**row, **dict.fromkeys(absent)}


async def reset(request: Request) -> Response:
    """`POST /system/reset/{plugin}`: close its breakers."""
    gateway, plugin = gateway_of(request), request.path_params["plugin"]
    now, answer = gateway.clock.now(), {"status": "ok", "plugin": plugin}
    if await is_dry(request):
        rows = await reading(gateway, lambda tx: _breakers(tx, gateway, plugin))
        closed = [row["command"] for row in rows if row["state"] != "closed"]
        return JsonResponse({**answer, "closed": closed, "dry_run": True})

    def work(tx: Tx) -> list[str]:
        _breakers(tx, gateway, plugin)
        return breakers.reset(tx, plugin, now)

    return JsonResponse({**answer, "closed": await writing(gateway, work)})
