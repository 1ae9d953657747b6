"""The gateway itself: what it is, how it is, what it has loaded."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.http.middleware.auth import is_from_this_machine, principal_of
from ductile.http.middleware.context import app_context_of
from ductile.http.requests import is_dry
from ductile.http.responses import JsonResponse, gateway_of
from ductile.operations import status as report
from ductile.operations.dry_run import pipeline
from ductile.store import breakers
from ductile.store.jobs.read import count_jobs

LEDGER_PATIENCE = 2.0
LINKS = {
    "health": "/healthz",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "plugins": "/plugins",
    "jobs": "/jobs",
}


def _uptime(gateway: Services) -> int:
    return int((gateway.clock.now() - gateway.started_at).total_seconds())


async def root(request: Request) -> Response:
    """`GET /`: the name of the gateway, how long it runs, and where to go on."""
    gateway = gateway_of(request)
    return JsonResponse(
        {
            "name": gateway.compiled.settings.service.name,
            "version": ductile.__version__,
            "uptime_seconds": _uptime(gateway),
            "links": LINKS,
        }
    )


async def healthz(request: Request) -> Response:
    """`GET /healthz`: how the gateway is, 503 if not well; to a stranger the status alone."""
    known = principal_of(request) is not None or is_from_this_machine(request.scope)
    return await health_of(gateway_of(request), whole=known)


async def health_of(gateway: Services, *, whole: bool) -> Response:
    """200 and `ok`, or 503 and `error`; with `whole` the figures too, or what is amiss."""
    counted = await _counted(gateway)
    status, code = ("error", 503) if "error" in counted else ("ok", 200)
    if not whole:
        return JsonResponse({"status": status}, code)
    told = {
        "status": status,
        "version": ductile.__version__,
        "uptime_seconds": _uptime(gateway),
        "plugins_loaded": len(gateway.compiled.plans),
        **counted,
    }
    return JsonResponse(told, code)


async def _counted(gateway: Services) -> dict[str, object]:
    """What the ledger says, or an `error` where it says nothing or cannot be trusted."""

    def count() -> dict[str, object]:
        waiting, _ = count_jobs(gateway.ledger)
        broken = gateway.ledger.read(breakers.plugins_not_closed)
        here = [plugin for plugin in broken if gateway.compiled.gone(plugin) is None]
        return {"queue_depth": waiting, "plugins_circuit_open": len(here)}

    if gateway.failure is not None:
        return _amiss(gateway.failure)
    try:
        return await asyncio.wait_for(asyncio.to_thread(count), LEDGER_PATIENCE)
    except TimeoutError:
        return _amiss(LedgerError("the ledger does not answer"))
    except LedgerError as error:
        return _amiss(error)


def _amiss(error: LedgerError) -> dict[str, object]:
    return {"error": error.message, "code": error.code}


async def status(request: Request) -> Response:
    """`GET /system/status`: runs `health` of every plugin that declares it.

    There is one check-up at a time: who asks meanwhile is told what it finds.
    """
    gateway, checks = gateway_of(request), await app_context_of(request).health_checks()

    def work() -> dict[str, object]:
        page = report.status(gateway.compiled, gateway.unready, gateway.ledger, checks)
        return {
            "running_gateway": True,
            "version": ductile.__version__,
            "boot": gateway.boot,
            "uptime_seconds": _uptime(gateway),
            "workers": gateway.workers,
            "ledger": gateway.ledger.health(),
            **page,
        }

    return JsonResponse(await asyncio.to_thread(work))


async def reload(request: Request) -> Response:
    """`POST /system/reload`: the new configuration whole, or 409 with its problems."""
    if await is_dry(request):
        return await rehearse_reload(request)
    gateway = gateway_of(request)
    warnings = await app_context_of(request).aside(gateway.reload)
    refused = {refusal.name: refusal.reason for refusal in gateway.compiled.registry.refused}
    told = [str(warning) for warning in warnings]
    return JsonResponse({"status": "ok", "warnings": told, "refused": refused})


async def rehearse_reload(request: Request) -> Response:
    """`GET /system/reload`: what a reload would bring, or 409 with what it would refuse."""
    app_context = app_context_of(request)
    return JsonResponse(await app_context.aside(pipeline.reload, app_context.gateway.compiled))


async def plugins(request: Request) -> Response:
    """`GET /plugins`: every plugin that was found or configured, and why one cannot run."""
    gateway = gateway_of(request)
    return JsonResponse({"plugins": report.plugins(gateway.compiled, gateway.unready)})
