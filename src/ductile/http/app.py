"""The application: one table binds a method and path to a scope and a handler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ductile.config import Settings
from ductile.errors import DuctileError
from ductile.http import (
    answers,
    discovery,
    events,
    jobs,
    operators,
    pipelines,
    schedules,
    system,
    tokens,
)
from ductile.http.answers import Handler
from ductile.http.guard import Guard, permit
from ductile.http.lobby import Lobby
from ductile.http.relay import RelayIngress
from ductile.runtime.gateway import Gateway


@dataclass(frozen=True, slots=True)
class Endpoint:
    method: str
    path: str
    scope: str | None
    """What a token must be allowed; None is open to all, `any` to every good token."""
    handler: Handler
    query: tuple[str, ...] = ()
    """The parameters that it takes after the `?`."""
    open: Callable[[Settings], bool] | None = None
    """Whether the configuration opens it to all."""


_PAGE = ("limit", "before")
_OF_JOBS = ("status", "plugin", "command")

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
    Endpoint("GET", "/pipelines", "any", pipelines.listing),
    Endpoint("GET", "/pipeline/{name}", "any", pipelines.show),
    Endpoint("POST", "/pipeline/{name}", "plugin:rw", pipelines.start),
    Endpoint("GET", "/pipeline-instance/{instance_id}", "jobs:ro", pipelines.instance),
    Endpoint("GET", "/notices", "events:ro", pipelines.notices),
    Endpoint("GET", "/events", "events:ro", events.follow, ("topic", "after")),
    Endpoint("GET", "/jobs", "jobs:ro", jobs.listing, (*_OF_JOBS, "submitted_by", *_PAGE)),
    Endpoint("POST", "/jobs/cancel", "jobs:rw", operators.cancel_many),
    Endpoint("POST", "/jobs/retry", "jobs:rw", operators.retry_many),
    Endpoint("GET", "/analytics/summary", "jobs:ro", operators.analytics_summary, ("window",)),
    Endpoint("GET", "/analytics/queue", "jobs:ro", operators.analytics_queue),
    Endpoint("GET", "/config/view", "system:ro", operators.config_view),
    Endpoint("GET", "/metrics", "system:ro", operators.metrics, open=operators.metrics_are_public),
    Endpoint("GET", "/plugin/{plugin}", "any", discovery.plugin),
    Endpoint("GET", "/plugin/{plugin}/openapi.json", "any", discovery.plugin_openapi),
    Endpoint("GET", "/skills", "any", discovery.skills),
    Endpoint("GET", "/openapi.json", "any", discovery.whole_openapi),
    Endpoint("GET", "/.well-known/ai-plugin.json", "any", discovery.ai_plugin),
    Endpoint("GET", "/queue", "jobs:ro", jobs.queue, ("limit",)),
    Endpoint("GET", "/job-logs", "jobs:ro", jobs.logs, (*_OF_JOBS, "job_id", "since", *_PAGE)),
    Endpoint("GET", "/scheduler/jobs", "jobs:ro", schedules.listing),
    Endpoint("GET", "/scheduler/next", "jobs:ro", schedules.coming),
    Endpoint("GET", "/scheduler/explain", "jobs:ro", schedules.explain),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/pause", "system:rw", schedules.pause),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/resume", "system:rw", schedules.resume),
    Endpoint("GET", "/system/breaker/{plugin}", "jobs:ro", schedules.breaker),
    Endpoint("POST", "/system/reset/{plugin}", "system:rw", schedules.reset),
    Endpoint("GET", "/tokens", "system:ro", tokens.listing),
    Endpoint("POST", "/tokens", "*", tokens.create),
    Endpoint("POST", "/token/{which}/revoke", "*", tokens.revoke),
    Endpoint("POST", "/token/{which}/rotate", "*", tokens.rotate),
    Endpoint("GET", "/system/reload", "system:rw", schedules.rehearse_reload),
    Endpoint("POST", "/system/reload", "system:rw", system.reload),
)


def local_app(gateway: Gateway, lobby: Lobby | None = None) -> Starlette:
    """The application for the local socket: its file mode is the authentication."""
    return _app(lobby or Lobby(gateway), local=True)


def api_app(lobby: Lobby) -> Guard:
    """The application for the network: nobody gets to a route but by the table."""
    return Guard(RelayIngress(_app(lobby, local=False), lobby), lobby)


def _app(lobby: Lobby, *, local: bool) -> Starlette:
    app = Starlette(
        routes=[Route(e.path, _bound(e), methods=[e.method]) for e in ENDPOINTS],
        exception_handlers=answers.EXCEPTIONS,
    )
    app.router.redirect_slashes = False
    app.state.gateway = lobby.gateway
    app.state.lobby = lobby
    app.state.endpoints = ENDPOINTS
    app.state.local = local
    app.state.synchronous = lobby.synchronous
    return app


def _bound(endpoint: Endpoint) -> Handler:
    """The handler behind its scope, and with nothing secret in its answer."""

    async def handler(request: Request) -> Response:
        gateway, metrics = request.app.state.gateway, request.app.state.lobby.metrics
        before, status = gateway.clock.monotonic(), 500
        try:
            if endpoint.open is None or not endpoint.open(gateway.blueprint.settings):
                permit(request, endpoint.scope)
            response: Response = await endpoint.handler(request)
            status = response.status_code
            return answers.redacted(response, gateway)
        except DuctileError as error:
            status = error.http_status
            raise
        finally:
            took = gateway.clock.monotonic() - before
            metrics.answered(endpoint.method, endpoint.path, status, took)

    return handler
