"""Schedules and circuit breakers."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from ductile.engine.services import Services
from ductile.http.responses import (
    JsonResponse,
    change_response,
    read_ledger,
    run_transaction,
    services_of,
    write_ledger,
)
from ductile.operations import schedule_report
from ductile.operations.reports.breakers import BreakerReset, show_breakers
from ductile.operations.schedules import set_paused
from ductile.store import reminders

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody
    from ductile.http.models.queries import NextFireQuery, ScheduleHistoryQuery

MAX_REMINDERS = 1000
"""Reminders that are listed with the schedules; `GET /gateway/cron` lists all of them."""
DEFAULT_HISTORY = timedelta(days=1)


def _boot_time(services: Services) -> datetime | None:
    """Return when the running scheduler started; None if no gateway runs."""
    return services.scheduler.boot if services.loops else None


async def list_schedules(request: Request) -> Response:
    """`GET /scheduler/jobs`: List schedules with next run and state, and agents' reminders."""
    services = services_of(request)
    rows = await asyncio.to_thread(
        schedule_report.listing,
        services.compiled,
        services.unready,
        services.ledger,
        services.clock.now(),
        _boot_time(services),
    )
    kept = await read_ledger(
        services, lambda tx: reminders.list_reminders(tx, limit=MAX_REMINDERS, payloads=False)
    )
    return JsonResponse({"schedules": rows, "reminders": [_without_payload(row) for row in kept]})


def _without_payload(reminder: dict[str, Any]) -> dict[str, Any]:
    """Return what callers that may see schedules may see; payloads are for agents."""
    return {key: value for key, value in reminder.items() if key != "payload"}


async def list_next_fires(request: Request, query: NextFireQuery) -> Response:
    """`GET /scheduler/next`: List the coming fires, and which of the times are exact."""
    services = services_of(request)
    entries = schedule_report.find(services.compiled, query.name)
    fires = await asyncio.to_thread(
        schedule_report.next_fires_of_all,
        entries,
        services.compiled,
        services.ledger,
        services.clock.now(),
        query.count,
        _boot_time(services),
    )
    return JsonResponse({"fires": fires})


async def explain_occurrences(request: Request, query: ScheduleHistoryQuery) -> Response:
    """`GET /scheduler/explain`: List every occurrence, and why one did not fire."""
    services = services_of(request)
    now = services.clock.now()
    back = DEFAULT_HISTORY if query.since is None else now - query.since
    entries = schedule_report.find(services.compiled, query.name)

    def work() -> list[dict[str, Any]]:
        found = [
            occurrence
            for entry in entries
            for occurrence in schedule_report.explain(entry, services.ledger, now, back=back)
        ]
        return sorted(found, key=lambda row: (row["slot"], row["schedule"]))

    return JsonResponse({"slots": await asyncio.to_thread(work)})


async def pause_schedule(request: Request, body: ActionBody) -> Response:
    """`POST /scheduler/{plugin}/{schedule}/pause`: Pause a schedule until it is resumed."""
    return await _set_paused(request, body, paused=True)


async def resume_schedule(request: Request, body: ActionBody) -> Response:
    """`POST /scheduler/{plugin}/{schedule}/resume`: Resume a paused schedule."""
    return await _set_paused(request, body, paused=False)


async def _set_paused(request: Request, body: ActionBody, *, paused: bool) -> Response:
    services = services_of(request)
    plugin, id = request.path_params["plugin"], request.path_params["schedule"]
    (schedule,) = schedule_report.find(services.compiled, f"{plugin}/{id}")
    result = {"plugin": plugin, "schedule": id, "paused": paused}
    if body.dry_run:
        return change_response(result, dry_run=True)
    now = services.clock.now()
    await write_ledger(services, lambda tx: set_paused(tx, schedule, now, paused=paused))
    if services.loops:
        await asyncio.to_thread(services.scheduler.refresh)
        services.loops.wake("scheduler")
    return JsonResponse(result)


async def list_breakers(request: Request) -> Response:
    """`GET /system/breaker/{plugin}`: Show the circuit breakers of a plugin and their history."""
    plugin = request.path_params["plugin"]
    return JsonResponse(await asyncio.to_thread(show_breakers, services_of(request), plugin))


async def reset_breakers(request: Request, body: ActionBody) -> Response:
    """`POST /system/reset/{plugin}`: Close the circuit breakers of a plugin."""
    services, plugin, dry_run = services_of(request), request.path_params["plugin"], body.dry_run
    reset = BreakerReset(services, plugin, dry=dry_run)
    closed = await run_transaction(services, reset, dry_run=dry_run)
    result = {"status": "ok", "plugin": plugin, "closed": closed}
    return change_response(result, dry_run=dry_run)
