"""The application: one table binds a method and path to a scope and a handler."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.routing import Route

from ductile.errors import DuctileError
from ductile.http import answers, jobs, pipelines, schedules, system
from ductile.http.answers import Handler
from ductile.runtime.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: str | None
    """What a token must be allowed; None is open to all, `any` to every good token."""
    handler: Handler


ENDPOINTS = (
    Endpoint("GET", "/", None, system.root),
    Endpoint("GET", "/healthz", None, system.healthz),
    Endpoint("GET", "/system/status", "system:ro", system.status),
    Endpoint("GET", "/plugins", "any", system.plugins),
    Endpoint("POST", "/plugin/{plugin}/{command}", "plugin", jobs.trigger),
    Endpoint("GET", "/job/{job_id}", "jobs:ro", jobs.show),
    Endpoint("GET", "/job/{job_id}/tree", "jobs:ro", pipelines.tree),
    Endpoint("GET", "/job/{job_id}/why", "jobs:ro", pipelines.why),
    Endpoint("POST", "/job/{job_id}/cancel", "jobs:rw", pipelines.cancel),
    Endpoint("POST", "/job/{job_id}/retry", "jobs:rw", pipelines.retry),
    Endpoint("POST", "/job/{job_id}/replay", "jobs:rw", pipelines.replay),
    Endpoint("POST", "/pipeline/{name}", "plugin:rw", pipelines.start),
    Endpoint("GET", "/jobs", "jobs:ro", jobs.listing),
    Endpoint("GET", "/queue", "jobs:ro", jobs.queue),
    Endpoint("GET", "/job-logs", "jobs:ro", jobs.logs),
    Endpoint("GET", "/scheduler/jobs", "jobs:ro", schedules.listing),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/pause", "system:rw", schedules.pause),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/resume", "system:rw", schedules.resume),
    Endpoint("GET", "/system/breaker/{plugin}", "jobs:ro", schedules.breaker),
    Endpoint("POST", "/system/reset/{plugin}", "system:rw", schedules.reset),
    Endpoint("POST", "/system/reload", "system:rw", system.reload),
)


def local_app(gateway: Gateway) -> Starlette:
    """The application for the local socket: its file mode is the authentication."""
    app = Starlette(
        routes=[Route(e.path, e.handler, methods=[e.method]) for e in ENDPOINTS],
        exception_handlers={
            DuctileError: answers.refused,
            HTTPException: answers.http_error,
            Exception: answers.crashed,
        },
    )
    app.state.gateway = gateway
    app.state.local = True
    app.state.synchronous = asyncio.Semaphore(gateway.blueprint.settings.api.max_concurrent_sync)
    return app
