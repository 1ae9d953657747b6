"""The gateway itself: what it is, how it is, what it has loaded."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.errors import LedgerError
from ductile.http.answers import JsonResponse, gateway_of
from ductile.http.guard import principal_of
from ductile.http.knock import is_near
from ductile.runtime import health, report
from ductile.runtime.gateway import Gateway

LEDGER_PATIENCE = 2.0
LINKS = {
    "health": "/healthz",
    "docs": "/docs",
    "openapi": "/openapi.json",
    "plugins": "/plugins",
    "jobs": "/jobs",
}


async def root(request: Request) -> Response:
    """`GET /`: the name of the gateway, how long it runs, and where to go on."""
    gateway = gateway_of(request)
    return JsonResponse(
        {
            "name": gateway.blueprint.settings.service.name,
            "version": ductile.__version__,
            "uptime_seconds": int((gateway.clock.now() - gateway.started_at).total_seconds()),
            "links": LINKS,
        }
    )


async def healthz(request: Request) -> Response:
    """`GET /healthz`: how the gateway is; to a stranger from elsewhere the status alone."""
    gateway = gateway_of(request)
    known = principal_of(request) is not None or is_near(request.scope)
    return JsonResponse(await health_of(gateway, whole=known))


async def health_of(gateway: Gateway, *, whole: bool) -> dict[str, object]:
    status = {"status": "ok" if gateway.failure is None else "error"}
    if not whole:
        return dict(status)
    return {
        **status,
        "version": ductile.__version__,
        "uptime_seconds": int((gateway.clock.now() - gateway.started_at).total_seconds()),
        "plugins_loaded": len(gateway.blueprint.plans),
        **await _counted(gateway),
    }


async def _counted(gateway: Gateway) -> dict[str, object]:
    """What the ledger says, if it answers."""

    def count() -> dict[str, object]:
        waiting, _ = report.queue_counts(gateway.ledger)
        broken = gateway.ledger.read(lambda tx: tx.all("open_breakers")[0][0])
        return {"queue_depth": waiting, "plugins_circuit_open": broken}

    try:
        return await asyncio.wait_for(asyncio.to_thread(count), LEDGER_PATIENCE)
    except (TimeoutError, LedgerError):
        return {"status": "error"}


async def status(request: Request) -> Response:
    """`GET /system/status`: runs `health` of every plugin that declares it."""
    gateway = gateway_of(request)

    def work() -> dict[str, object]:
        blueprint = gateway.blueprint
        checkups = health.check_up(blueprint, gateway.ledger, gateway.clock, gateway.entropy)
        page = report.status(blueprint, gateway.unready, gateway.ledger, checkups)
        return {
            "running_gateway": True,
            "version": ductile.__version__,
            "boot": gateway.boot,
            "uptime_seconds": int((gateway.clock.now() - gateway.started_at).total_seconds()),
            "workers": gateway.workers,
            "ledger": gateway.ledger.health(),
            **page,
        }

    return JsonResponse(await asyncio.to_thread(work))


async def reload(request: Request) -> Response:
    """`POST /system/reload`: the new configuration whole, or 409 with its problems."""
    gateway = gateway_of(request)
    warnings = await asyncio.to_thread(gateway.reload)
    refused = {refusal.name: refusal.reason for refusal in gateway.blueprint.registry.refused}
    told = [str(warning) for warning in warnings]
    return JsonResponse({"status": "ok", "warnings": told, "refused": refused})


async def plugins(request: Request) -> Response:
    """`GET /plugins`: every plugin that was found or configured, and why one cannot run."""
    gateway = gateway_of(request)
    return JsonResponse({"plugins": report.plugins(gateway.blueprint, gateway.unready)})
