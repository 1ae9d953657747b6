"""`GET /healthz`: whether the gateway works, and for known callers its main figures."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.http.middleware.auth import is_from_this_machine, principal_of
from ductile.http.responses import JsonResponse, services_of
from ductile.store import breakers
from ductile.store.jobs.read import count_jobs

LEDGER_TIMEOUT = 2.0


async def show_health(request: Request) -> Response:
    """`GET /healthz`: Report the health, 503 if it is bad; unknown callers see the status alone."""
    is_known = principal_of(request) is not None or is_from_this_machine(request.scope)
    return await check_health(services_of(request), details=is_known)


async def check_health(services: Services, *, details: bool) -> Response:
    """Return 200 and `ok`, or 503 and `error`; with `details` the figures or the reason too."""
    figures = await _read_figures(services)
    status, code = ("error", 503) if "error" in figures else ("ok", 200)
    if not details:
        return JsonResponse({"status": status}, code)
    uptime = services.clock.now() - services.started_at
    return JsonResponse(
        {
            "status": status,
            "version": ductile.__version__,
            "uptime_seconds": int(uptime.total_seconds()),
            "plugins_loaded": len(services.compiled.plans),
            **figures,
        },
        code,
    )


async def _read_figures(services: Services) -> dict[str, object]:
    """Return figures from the ledger, or an `error` if it does not answer or is broken."""

    def count() -> dict[str, object]:
        queued, _ = count_jobs(services.ledger)
        tripped = services.ledger.read(breakers.list_open_plugins)
        loaded = [plugin for plugin in tripped if services.compiled.gone(plugin) is None]
        return {"queue_depth": queued, "plugins_circuit_open": len(loaded)}

    if services.failure is not None:
        return _describe(services.failure)
    try:
        return await asyncio.wait_for(asyncio.to_thread(count), LEDGER_TIMEOUT)
    except TimeoutError:
        return _describe(LedgerError("the ledger does not answer"))
    except LedgerError as error:
        return _describe(error)


def _describe(error: LedgerError) -> dict[str, object]:
    return {"error": error.message, "code": error.code}
