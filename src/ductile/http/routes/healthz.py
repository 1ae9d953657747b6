"""`GET /healthz`: whether the gateway works, and for known callers its main figures."""

from __future__ import annotations

import asyncio
from dataclasses import asdict

from starlette.requests import Request
from starlette.responses import Response

import ductile
from ductile.engine.observability.health import FailingPart
from ductile.engine.observability.parts import LEDGER
from ductile.engine.services import Services
from ductile.errors import LedgerError
from ductile.http.middleware.auth import principal_of
from ductile.http.middleware.source import is_from_this_machine
from ductile.http.responses import JsonResponse, services_of
from ductile.store import breakers
from ductile.store.jobs.read import count_jobs

LEDGER_TIMEOUT = 2.0


async def show_health(request: Request) -> Response:
    """`GET /healthz`: Report the health, 503 if it is bad; unknown callers see the status alone."""
    is_known = principal_of(request) is not None or is_from_this_machine(request.scope)
    return await check_health(services_of(request), details=is_known)


async def check_health(services: Services, *, details: bool) -> Response:
    """Return 200 and `ok` while a job can be accepted and settled, else 503 and `error`.

    With `details` also the figures, and the parts that fail.
    """
    figures, failing = await asyncio.gather(_read_figures(services), _check_parts(services))
    if isinstance(figures, FailingPart):
        failing, figures = (figures, *(part for part in failing if part.part != LEDGER)), {}
    critical = [part for part in failing if part.critical]
    status, code = ("error", 503) if critical else ("ok", 200)
    if not details:
        return JsonResponse({"status": status}, code)
    reason = {"error": critical[0].error, "code": critical[0].code} if critical else {}
    return JsonResponse(
        {
            "status": status,
            "version": ductile.__version__,
            "uptime_seconds": int(services.uptime),
            "plugins_loaded": len(services.compiled.plans),
            **figures,
            **reason,
            **({"failing": [asdict(part) for part in failing]} if failing else {}),
        },
        code,
    )


async def _check_parts(services: Services) -> tuple[FailingPart, ...]:
    if services.health is None:
        return ()
    return await asyncio.to_thread(services.health.check)


async def _read_figures(services: Services) -> dict[str, object] | FailingPart:
    """Return figures from the ledger, or why it cannot be read."""

    def count() -> dict[str, object]:
        queued, _ = count_jobs(services.ledger)
        tripped = services.ledger.read(breakers.list_open_plugins)
        loaded = [plugin for plugin in tripped if services.compiled.expects(plugin)]
        return {"queue_depth": queued, "plugins_circuit_open": len(loaded)}

    if services.failure is not None:
        return FailingPart(LEDGER, services.failure.message, services.failure.code)
    try:
        return await asyncio.wait_for(asyncio.to_thread(count), LEDGER_TIMEOUT)
    except TimeoutError:
        return FailingPart(LEDGER, "the ledger does not answer", LedgerError.code)
    except LedgerError as error:
        return FailingPart(LEDGER, error.message, error.code)
