"""The application: one table binds a method and path to a token's scope and a handler."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from ductile.core.values.suggest import did_you_mean
from ductile.engine.services import Services
from ductile.errors import DuctileError, UsageError
from ductile.http.endpoint import Endpoint
from ductile.http.middleware.auth import (
    ENDPOINT,
    AccessControl,
    AuthMiddleware,
    authorize,
    reauthorize,
)
from ductile.http.middleware.context import AppContext, app_context_of
from ductile.http.middleware.fast_path import FastPath
from ductile.http.middleware.router import PathRouter
from ductile.http.responses import Handler, gateway_of, redacted
from ductile.http.routes import (
    agent_webhooks,
    agents,
    bulk,
    deliveries,
    discovery,
    docs,
    events,
    facts,
    jobs,
    operations,
    operators,
    pipelines,
    relays,
    reminders,
    schedules,
    system,
    tokens,
)
from ductile.http.routes.relay_ingress import RelayIngress

_WAIT = "wait"
_PAGE = ("limit", "before")
_OF_JOBS = ("status", "plugin", "command", "submitted_by", *_PAGE)
_OF_ATTEMPTS = (*_OF_JOBS, "job_id", "since", "from", "to", "query", "include_result")
_OF_DELIVERIES = ("status", "webhook_id", "since", *_PAGE)
_OF_AGENTS = ("live", "agent_id", "after", "limit")

ENDPOINTS = (
    Endpoint("GET", "/", None, system.root),
    Endpoint("GET", "/healthz", None, system.healthz),
    Endpoint("GET", "/system/status", "system:ro", system.status),
    Endpoint("GET", "/plugins", "any", system.plugins),
    Endpoint("POST", "/plugin/{plugin}/{command}", "plugin", jobs.trigger),
    Endpoint("GET", "/job/{job_id}", "jobs:ro", jobs.show, (_WAIT,)),
    Endpoint("GET", "/job/{job_id}/tree", "jobs:ro", jobs.tree, ("flat",)),
    Endpoint("GET", "/job/{job_id}/why", "jobs:ro", jobs.why),
    Endpoint("POST", "/job/{job_id}/cancel", "jobs:rw", jobs.cancel),
    Endpoint("POST", "/job/{job_id}/retry", "jobs:rw", jobs.retry),
    Endpoint("POST", "/job/{job_id}/replay", "jobs:rw", jobs.replay),
    Endpoint("GET", "/pipelines", "any", pipelines.listing),
    Endpoint("GET", "/pipeline/{name}", "any", pipelines.show),
    Endpoint("POST", "/pipeline/{name}", "plugin:rw", pipelines.start, ("async",)),
    Endpoint(
        "GET",
        "/pipeline-instance/{instance_id}",
        "jobs:ro",
        pipelines.instance,
        (_WAIT, "seen"),
    ),
    Endpoint("GET", "/notices", "events:ro", events.notices, ("after", "last")),
    Endpoint("GET", "/events", "events:ro", events.follow, ("topic", "after")),
    Endpoint("GET", "/jobs", "jobs:ro", jobs.listing, _OF_JOBS),
    Endpoint("GET", "/job-ids", "jobs:ro", jobs.ids, ("begins", "limit")),
    Endpoint("POST", "/jobs/cancel", "jobs:rw", bulk.cancel),
    Endpoint("POST", "/jobs/retry", "jobs:rw", bulk.retry),
    Endpoint("GET", "/analytics/summary", "jobs:ro", operators.analytics_summary, ("window",)),
    Endpoint("GET", "/analytics/queue", "jobs:ro", operators.analytics_queue),
    Endpoint("GET", "/config/view", "system:ro", operators.config_view),
    Endpoint(
        "GET", "/metrics", "system:ro", operators.metrics, is_public=operators.metrics_are_public
    ),
    Endpoint("GET", "/plugin/{plugin}", "any", discovery.plugin),
    Endpoint("GET", "/plugin/{plugin}/openapi.json", "any", discovery.plugin_openapi),
    Endpoint("GET", "/skills", "any", discovery.skills),
    Endpoint("GET", "/openapi.json", "any", discovery.whole_openapi),
    Endpoint("GET", "/docs", None, docs.page),
    Endpoint("GET", "/.well-known/ai-plugin.json", "any", discovery.ai_plugin),
    Endpoint("GET", "/queue", "jobs:ro", jobs.queue, ("limit",)),
    Endpoint("GET", "/job-logs", "jobs:ro", jobs.logs, _OF_ATTEMPTS),
    Endpoint("GET", "/scheduler/jobs", "jobs:ro", schedules.listing),
    Endpoint("GET", "/scheduler/next", "jobs:ro", schedules.coming, ("name", "count")),
    Endpoint("GET", "/scheduler/explain", "jobs:ro", schedules.explain, ("name", "since")),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/pause", "system:rw", schedules.pause),
    Endpoint("POST", "/scheduler/{plugin}/{schedule}/resume", "system:rw", schedules.resume),
    Endpoint("GET", "/system/breaker/{plugin}", "jobs:ro", schedules.breaker),
    Endpoint(
        "GET", "/system/plugin-facts/{plugin}", "jobs:ro", facts.listing, ("fact_type", *_PAGE)
    ),
    Endpoint("POST", "/system/reset/{plugin}", "system:rw", schedules.reset),
    Endpoint("GET", "/relays", "jobs:ro", relays.listing, ("status", "instance", "limit")),
    Endpoint("POST", "/relays/retry", "jobs:rw", relays.retry_dead),
    Endpoint("POST", "/relay/{relay_id}/retry", "jobs:rw", relays.retry),
    Endpoint("GET", "/tokens", "system:ro", tokens.listing),
    Endpoint("POST", "/tokens", "*", tokens.create),
    Endpoint("POST", "/token/{which}/revoke", "*", tokens.revoke),
    Endpoint("POST", "/token/{which}/rotate", "*", tokens.rotate),
    Endpoint("POST", "/gateway/heartbeat", "agents:rw", agents.beat, is_public=agents.is_public),
    Endpoint("POST", "/gateway/messages", "agents:rw", agents.message, is_public=agents.is_public),
    Endpoint("GET", "/gateway/heartbeats", "agents:ro", agents.listing, _OF_AGENTS),
    Endpoint("GET", "/gateway/capabilities", "agents:ro", agents.capabilities, ("after", "limit")),
    Endpoint("GET", "/gateway/cron", "agents:ro", reminders.listing, _OF_AGENTS[1:]),
    Endpoint("POST", "/gateway/cron", "agents:rw", reminders.remind),
    Endpoint("POST", "/gateway/cron/{reminder_id}/forget", "agents:rw", reminders.forget),
    Endpoint("GET", "/gateway/deliveries", "agents:ro", deliveries.listing, _OF_DELIVERIES),
    Endpoint("GET", "/gateway/deliveries/{delivery_id}", "agents:ro", deliveries.show),
    Endpoint("POST", "/gateway/deliveries", "agents:rw", deliveries.send),
    Endpoint("POST", "/gateway/deliveries/retry", "agents:rw", deliveries.retry_many),
    Endpoint("POST", "/gateway/deliveries/{delivery_id}/retry", "agents:rw", deliveries.retry),
    Endpoint("GET", "/gateway/webhook-configs", "agents:ro", agent_webhooks.listing),
    Endpoint("POST", "/gateway/webhook-configs", "agents:rw", agent_webhooks.add),
    Endpoint(
        "DELETE",
        "/gateway/webhook-configs/{webhook_id}",
        "agents:rw",
        agent_webhooks.remove,
        ("dry_run",),
    ),
    Endpoint("POST", "/gateway/webhooks/{webhook_id}", None, agent_webhooks.receive),
    Endpoint("GET", "/system/reload", "system:rw", system.rehearse_reload),
    Endpoint("POST", "/system/reload", "system:rw", system.reload),
    Endpoint("GET", "/system/overview", "system:ro", operations.overview),
    Endpoint("GET", "/system/backup", "system:ro", operations.backup_state, (_WAIT,)),
    Endpoint("POST", "/system/backup", "system:rw", operations.backup),
)


def local_app(gateway: Services, app_context: AppContext | None = None) -> PathRouter:
    """The application for the local socket: its file mode is the authentication."""
    app_context = app_context or AppContext(gateway)
    access = AccessControl(app_context, local=True)
    app = _router(app_context, access)
    app.fast_path = FastPath(app_context, access, ENDPOINTS)
    return app


def api_app(app_context: AppContext) -> AuthMiddleware:
    """The application for the network: every request passes the access control."""
    access = AccessControl(app_context, local=False)
    router = _router(app_context, access)
    relay = RelayIngress(router, app_context)
    return AuthMiddleware(router, access, relay, FastPath(app_context, access, ENDPOINTS))


def _router(app_context: AppContext, access: AccessControl) -> PathRouter:
    router = PathRouter((e.method, e.path, _bound(e)) for e in ENDPOINTS)
    router.state.app_context = app_context
    router.state.access = access
    router.state.endpoints = ENDPOINTS
    return router


def _readable(request: Request) -> None:
    """U+0000 is in no name and no filter, and not every ledger takes it as text."""
    for name, value in request.path_params.items():
        request.path_params[name] = value.replace("\0", "\ufffd")
    if b"%00" in request.scope["query_string"]:
        raise UsageError("no filter holds U+0000")


def _known(request: Request, endpoint: Endpoint) -> None:
    """Refuse what is asked of a read and would be ignored: the answer would pass for it."""
    if endpoint.method != "GET" or endpoint.token_scope is None:
        return
    for name in request.query_params:
        if name not in endpoint.query:
            close = did_you_mean(name, endpoint.query)
            raise UsageError(f"{endpoint.path} knows no parameter {name!r}{close}")


def _bound(endpoint: Endpoint) -> Handler:
    """The handler behind the scope that it takes, and with nothing secret in its answer."""

    async def handler(request: Request) -> Response:
        gateway, metrics = gateway_of(request), app_context_of(request).metrics
        before, status = gateway.clock.monotonic(), 500
        try:
            request.scope[ENDPOINT] = endpoint
            authorize(request)
            _readable(request)
            _known(request, endpoint)
            response = await endpoint.handler(request)
            if _WAIT in endpoint.query and _WAIT in request.query_params:
                await reauthorize(request)
            status = response.status_code
            return redacted(response, gateway)
        except DuctileError as error:
            status = error.http_status
            raise
        finally:
            took = gateway.clock.monotonic() - before
            metrics.count_request(endpoint.method, endpoint.path, status, took)

    return handler
