"""The gateway itself: root page, status, overview, configuration, reload, backups."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.clock import to_text
from ductile.errors import Refused, UsageError
from ductile.http.middleware.auth import access_of
from ductile.http.middleware.context import app_context_of
from ductile.http.responses import JsonResponse, services_of
from ductile.operations import status
from ductile.operations.backup import UNDER_WAY, check_target, room_at, target_for
from ductile.operations.overview import overview
from ductile.operations.reports.config_view import show_config

if TYPE_CHECKING:
    from ductile.http.models.bodies import ActionBody, BackupBody
    from ductile.http.models.queries import BackupQuery, StatusQuery

BACKUP_POLL = 0.05
LINKS = {
    "health": "/healthz",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "plugins": "/plugins",
    "jobs": "/jobs",
}


async def show_root(request: Request) -> Response:
    """`GET /`: Show the gateway's name, its uptime and links to other routes."""
    services = services_of(request)
    return JsonResponse(
        {
            "name": services.compiled.settings.service.name,
            "version": ductile.__version__,
            "uptime_seconds": int(services.uptime),
            "links": LINKS,
        }
    )


async def show_status(request: Request, query: StatusQuery) -> Response:
    """`GET /system/status`: Show the gateway's state and check the health of its plugins.

    It runs the `health` command of every plugin that declares it, unless `?health=last` asks for
    the results of the newest check. Concurrent requests share one check.
    """
    services, context = services_of(request), app_context_of(request)
    if query.health != "last":
        await context.health_checks()
    last = context.last_health

    def work() -> dict[str, object]:
        now = services.clock.now()
        page = status.status(services.compiled, services.unready, services.ledger, last.checks, now)
        return {
            "running_gateway": True,
            "version": ductile.__version__,
            "boot": services.boot,
            "uptime_seconds": int(services.uptime),
            "workers": services.workers,
            "ledger": services.ledger.health(),
            "health_checked_at": last.checked_at and to_text(last.checked_at),
            "refused_webhooks": [row.describe() for row in context.refused_webhooks.read()],
            **page,
        }

    return JsonResponse(await asyncio.to_thread(work))


async def show_overview(request: Request) -> Response:
    """`GET /system/overview`: Show running and queued jobs, recent failures and coming fires."""
    return JsonResponse(await asyncio.to_thread(overview, services_of(request)))


async def view_config(request: Request) -> Response:
    """`GET /config/view`: Show the configuration in force, redacted, and its compiled routes."""
    return JsonResponse(show_config(services_of(request).compiled))


async def reload(request: Request, body: ActionBody) -> Response:
    """`POST /system/reload`: Apply the configuration on disk; 409 with its problems."""
    if body.dry_run:
        return await preview_reload(request)
    services = services_of(request)
    warnings = await app_context_of(request).run_blocking(services.reload)
    refused = {refusal.name: refusal.reason for refusal in services.compiled.registry.refused}
    shown = [str(warning) for warning in warnings]
    return JsonResponse({"status": "ok", "warnings": shown, "refused": refused})


async def preview_reload(request: Request) -> Response:
    """`GET /system/reload`: Show what a reload would change; 409 with its problems."""
    from ductile.operations.plan.plan import preview_reload as preview

    context = app_context_of(request)
    services = context.services
    return JsonResponse(await context.run_blocking(preview, services.compiled, services.environ))


async def start_backup(request: Request, body: BackupBody) -> Response:
    """`POST /system/backup`: Start a backup; 409 while another one runs.

    Only the local socket accepts a `path`, since other callers could write files anywhere.
    """
    services = services_of(request)
    if body.path is not None and not access_of(request).local:
        raise Refused("a path can be given on the local socket only")
    if body.path is not None and (not body.path.startswith("/") or "\0" in body.path):
        raise UsageError("path must be absolute")
    path = Path(body.path) if body.path is not None else None
    ledger = services.compiled.settings.state.path
    target = target_for(path, services.state_dir, ledger, services.clock.now())
    if body.dry_run:
        check_target(target, replace=body.replace)
        free = await asyncio.to_thread(room_at, target.parent)
        return JsonResponse({"dry_run": True, "path": str(target), "free": free})
    start = app_context_of(request).backups.start
    return JsonResponse(await asyncio.to_thread(start, target, replace=body.replace), 202)


async def show_backup(request: Request, query: BackupQuery) -> Response:
    """`GET /system/backup`: Show the backup that runs, or the last one."""
    backups = app_context_of(request).backups
    # Poll instead of blocking a thread: threads are for requests that read the ledger.
    with suppress(TimeoutError):
        async with asyncio.timeout(query.wait):
            while backups.state()["state"] in UNDER_WAY:
                await asyncio.sleep(BACKUP_POLL)
    return JsonResponse(backups.state())
