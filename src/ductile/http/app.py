"""The applications of the listeners, and the route table that they serve.

A row of the table binds a method and a path to the scope of a token, a handler, and the models of
its query, body and responses. The models are the only source for parsing and for OpenAPI. Rows
name them, so that the start of a gateway does not wait for about 130 classes: see `Endpoint`.
"""

from __future__ import annotations

from ductile.engine.services import Services
from ductile.http.endpoint import Endpoint, bind
from ductile.http.middleware.auth import AccessControl, AuthMiddleware
from ductile.http.middleware.context import AppContext
from ductile.http.middleware.fast_path import FastPath
from ductile.http.middleware.router import PathRouter
from ductile.http.requests import InvalidJson
from ductile.http.routes import (
    analytics,
    discovery,
    docs,
    events,
    facts,
    healthz,
    jobs,
    metrics,
    pipelines,
    relays,
    schedules,
    system,
    tokens,
)
from ductile.http.routes.agents import deliveries, heartbeats, reminders, webhooks
from ductile.http.routes.relay_ingress import RelayIngress

_KEY = ("Idempotency-Key",)

_JOBS = (
    Endpoint(
        "POST",
        "/plugin/{plugin}/{command}",
        "plugin",
        jobs.trigger,
        {202: "JobQueued", 200: "JobPlan"},
        body="TriggerBody",
        allow_trailing=True,
        headers=_KEY,
    ),
    Endpoint("GET", "/job/{job_id}", "jobs:ro", jobs.show_job, "Job", query="JobWaitQuery"),
    Endpoint(
        "GET",
        "/job/{job_id}/tree",
        "jobs:ro",
        jobs.show_tree,
        "JobTree",
        query="JobTreeQuery",
    ),
    Endpoint("GET", "/job/{job_id}/why", "jobs:ro", jobs.explain, "JobReasons"),
    Endpoint(
        "POST",
        "/job/{job_id}/cancel",
        "jobs:rw",
        jobs.cancel_job,
        {202: "JobCancellation", 200: "JobCancellation"},
        body="ActionBody",
    ),
    Endpoint(
        "POST",
        "/job/{job_id}/retry",
        "jobs:rw",
        jobs.retry_job,
        {202: "JobRetry", 200: "JobRetry"},
        body="ActionBody",
        headers=_KEY,
    ),
    Endpoint(
        "POST",
        "/job/{job_id}/replay",
        "jobs:rw",
        jobs.replay_job,
        {202: "JobReplay", 200: "JobReplay"},
        body="ReplayBody",
        headers=_KEY,
    ),
    Endpoint("GET", "/jobs", "jobs:ro", jobs.list_jobs, "JobPage", query="JobFilterQuery"),
    Endpoint("GET", "/job-ids", "jobs:ro", jobs.list_ids, "JobIds", query="JobIdQuery"),
    Endpoint("GET", "/queue", "jobs:ro", jobs.list_queue, "Queue", query="QueueQuery"),
    Endpoint("GET", "/job-logs", "jobs:ro", jobs.list_attempts, "AttemptPage", query="JobLogQuery"),
    Endpoint("POST", "/jobs/cancel", "jobs:rw", jobs.cancel_jobs, "BulkResult", body="BulkBody"),
    Endpoint(
        "POST",
        "/jobs/retry",
        "jobs:rw",
        jobs.retry_jobs,
        "BulkResult",
        body="BulkBody",
        headers=_KEY,
    ),
    Endpoint(
        "GET",
        "/analytics/summary",
        "jobs:ro",
        analytics.show_summary,
        "AnalyticsSummary",
        query="SummaryQuery",
    ),
    Endpoint("GET", "/analytics/queue", "jobs:ro", analytics.show_queue, "AnalyticsQueue"),
)

_PIPELINES = (
    Endpoint("GET", "/pipelines", "any", pipelines.list_pipelines, "Pipelines"),
    Endpoint("GET", "/pipeline/{name}", "any", pipelines.show_pipeline, "Pipeline"),
    Endpoint(
        "POST",
        "/pipeline/{name}",
        "plugin:rw",
        pipelines.start_pipeline,
        {202: "PipelineStarted", 200: "PipelineOutcome | PipelinePlan"},
        query="PipelineStartQuery",
        body="PipelineStartBody",
        allow_trailing=True,
        headers=_KEY,
    ),
    Endpoint(
        "GET",
        "/pipeline-instance/{instance_id}",
        "jobs:ro",
        pipelines.show_run,
        "Instance",
        query="RunWaitQuery",
    ),
)

_SCHEDULES = (
    Endpoint("GET", "/scheduler/jobs", "jobs:ro", schedules.list_schedules, "Schedules"),
    Endpoint(
        "GET",
        "/scheduler/next",
        "jobs:ro",
        schedules.list_next_fires,
        "Fires",
        query="NextFireQuery",
    ),
    Endpoint(
        "GET",
        "/scheduler/explain",
        "jobs:ro",
        schedules.explain_occurrences,
        "Occurrences",
        query="ScheduleHistoryQuery",
    ),
    Endpoint(
        "POST",
        "/scheduler/{plugin}/{schedule}/pause",
        "system:rw",
        schedules.pause_schedule,
        "SchedulePause",
        body="ActionBody",
    ),
    Endpoint(
        "POST",
        "/scheduler/{plugin}/{schedule}/resume",
        "system:rw",
        schedules.resume_schedule,
        "SchedulePause",
        body="ActionBody",
    ),
    Endpoint("GET", "/system/breaker/{plugin}", "jobs:ro", schedules.list_breakers, "Breakers"),
    Endpoint(
        "POST",
        "/system/reset/{plugin}",
        "system:rw",
        schedules.reset_breakers,
        "BreakerReset",
        body="ActionBody",
    ),
)

_EVENTS = (
    Endpoint("GET", "/notices", "events:ro", events.list_notices, "Notices", query="NoticeQuery"),
    Endpoint(
        "GET",
        "/events",
        "events:ro",
        events.stream_events,
        "EventStream",
        query="EventQuery",
        headers=("Last-Event-ID",),
    ),
)

_SYSTEM = (
    Endpoint("GET", "/", None, system.show_root, "RootPage"),
    Endpoint("GET", "/healthz", None, healthz.show_health, {200: "Health", 503: "Health"}),
    Endpoint(
        "GET",
        "/metrics",
        "system:ro",
        metrics.show_metrics,
        "MetricsText",
        is_public=metrics.is_public,
    ),
    Endpoint("GET", "/system/status", "system:ro", system.show_status, "Status"),
    Endpoint("GET", "/system/overview", "system:ro", system.show_overview, "Overview"),
    Endpoint("GET", "/config/view", "system:ro", system.view_config, "ConfigView"),
    Endpoint("GET", "/system/reload", "system:rw", system.preview_reload, "Reload"),
    Endpoint("POST", "/system/reload", "system:rw", system.reload, "Reload", body="ActionBody"),
    Endpoint(
        "GET",
        "/system/backup",
        "system:ro",
        system.show_backup,
        "Backup",
        query="BackupQuery",
    ),
    Endpoint(
        "POST",
        "/system/backup",
        "system:rw",
        system.start_backup,
        {202: "Backup", 200: "BackupPlan"},
        body="BackupBody",
    ),
    Endpoint(
        "GET",
        "/system/plugin-facts/{plugin}",
        "jobs:ro",
        facts.list_facts,
        "Facts",
        query="FactQuery",
    ),
)

_DISCOVERY = (
    Endpoint("GET", "/plugins", "any", system.list_plugins, "Plugins"),
    Endpoint("GET", "/plugin/{plugin}", "any", discovery.show_plugin, "PluginDetail"),
    Endpoint(
        "GET",
        "/plugin/{plugin}/openapi.json",
        "any",
        discovery.show_plugin_openapi,
        "OpenApi",
    ),
    Endpoint("GET", "/skills", "any", discovery.list_skills, "Skills"),
    Endpoint("GET", "/openapi.json", "any", discovery.show_openapi, "OpenApi"),
    Endpoint("GET", "/docs", None, docs.show_docs, "DocsPage"),
    Endpoint("GET", "/.well-known/ai-plugin.json", "any", discovery.show_ai_plugin, "AiPlugin"),
)

_TOKENS = (
    Endpoint("GET", "/tokens", "system:ro", tokens.list_tokens, "Tokens"),
    Endpoint(
        "POST",
        "/tokens",
        "*",
        tokens.create_token,
        {201: "TokenCreated", 200: "TokenPlan"},
        body="NewTokenBody",
    ),
    Endpoint(
        "POST", "/token/{which}/revoke", "*", tokens.revoke_token, "TokenChanged", body="ActionBody"
    ),
    Endpoint(
        "POST",
        "/token/{which}/rotate",
        "*",
        tokens.rotate_token,
        "TokenChanged",
        body="TokenRotationBody",
    ),
)

_RELAYS = (
    Endpoint("GET", "/relays", "jobs:ro", relays.list_relays, "Relays", query="RelayQuery"),
    Endpoint(
        "POST",
        "/relays/retry",
        "jobs:rw",
        relays.retry_dead_relays,
        {202: "RelaysRetry", 200: "RelaysRetry"},
        body="ActionBody",
    ),
    Endpoint(
        "POST",
        "/relay/{relay_id}/retry",
        "jobs:rw",
        relays.retry_relay,
        {202: "RelayRetry", 200: "RelayRetry"},
        body="ActionBody",
    ),
)

_AGENTS = (
    Endpoint(
        "POST",
        "/gateway/heartbeat",
        "agents:rw",
        heartbeats.record_heartbeat,
        "HeartbeatAccepted",
        raw_body="Heartbeat",
        is_public=heartbeats.is_public,
    ),
    Endpoint(
        "POST",
        "/gateway/messages",
        "agents:rw",
        heartbeats.publish_message,
        {202: "MessageAccepted"},
        raw_body="DecisionLog",
        is_public=heartbeats.is_public,
    ),
    Endpoint(
        "GET",
        "/gateway/heartbeats",
        "agents:ro",
        heartbeats.list_agents,
        "Agents",
        query="AgentQuery",
    ),
    Endpoint(
        "GET",
        "/gateway/capabilities",
        "agents:ro",
        heartbeats.list_capabilities,
        "Capabilities",
        query="CapabilityQuery",
    ),
    Endpoint(
        "GET",
        "/gateway/cron",
        "agents:ro",
        reminders.list_reminders,
        "Reminders",
        query="ReminderQuery",
    ),
    Endpoint(
        "POST",
        "/gateway/cron",
        "agents:rw",
        reminders.create_reminder,
        {201: "Reminder", 200: "Reminder"},
        body="NewReminderBody",
        max_body=reminders.MAX_BODY,
        json_error=InvalidJson,
    ),
    Endpoint(
        "POST",
        "/gateway/cron/{reminder_id}/forget",
        "agents:rw",
        reminders.forget_reminder,
        "Reminder",
        body="ActionBody",
        max_body=reminders.MAX_BODY,
        json_error=InvalidJson,
    ),
    Endpoint(
        "GET",
        "/gateway/deliveries",
        "agents:ro",
        deliveries.list_deliveries,
        "Deliveries",
        query="DeliveryQuery",
    ),
    Endpoint(
        "GET",
        "/gateway/deliveries/{delivery_id}",
        "agents:ro",
        deliveries.show_delivery,
        "DeliveryDetail",
    ),
    Endpoint(
        "POST",
        "/gateway/deliveries",
        "agents:rw",
        deliveries.send_delivery,
        {202: "DeliverySent", 200: "DeliveryPlan"},
        body="DeliveryBody",
        headers=_KEY,
    ),
    Endpoint(
        "POST",
        "/gateway/deliveries/retry",
        "agents:rw",
        deliveries.retry_deliveries,
        {202: "DeliveriesRetry", 200: "DeliveriesRetry"},
        body="RedeliveryBody",
    ),
    Endpoint(
        "POST",
        "/gateway/deliveries/{delivery_id}/retry",
        "agents:rw",
        deliveries.retry_delivery,
        {202: "DeliveryRetry", 200: "DeliveryRetry"},
        body="ActionBody",
    ),
    Endpoint("GET", "/gateway/webhook-configs", "agents:ro", webhooks.list_webhooks, "Webhooks"),
    Endpoint(
        "POST",
        "/gateway/webhook-configs",
        "agents:rw",
        webhooks.create_webhook,
        {201: "WebhookCreated", 200: "WebhookPlan"},
        body="NewWebhookBody",
    ),
    Endpoint(
        "DELETE",
        "/gateway/webhook-configs/{webhook_id}",
        "agents:rw",
        webhooks.remove_webhook,
        "WebhookRemoved",
        query="WebhookRemovalQuery",
    ),
    Endpoint(
        "POST",
        "/gateway/webhooks/{webhook_id}",
        None,
        webhooks.receive_event,
        {202: "EventAccepted"},
        raw_body="",
    ),
)

ENDPOINTS = (
    *_JOBS,
    *_PIPELINES,
    *_SCHEDULES,
    *_EVENTS,
    *_SYSTEM,
    *_DISCOVERY,
    *_TOKENS,
    *_RELAYS,
    *_AGENTS,
)


def local_app(services: Services, app_context: AppContext | None = None) -> PathRouter:
    """Return the application of the local socket, whose file mode is the authentication."""
    app_context = app_context or AppContext(services)
    access = AccessControl(app_context, local=True)
    router = _router(app_context, access)
    router.fast_path = FastPath(app_context, access, ENDPOINTS)
    return router


def api_app(app_context: AppContext) -> AuthMiddleware:
    """Return the application of the API listener: every request passes the access control."""
    access = AccessControl(app_context, local=False)
    router = _router(app_context, access)
    relay = RelayIngress(router, app_context)
    return AuthMiddleware(router, access, relay, FastPath(app_context, access, ENDPOINTS))


def _router(app_context: AppContext, access: AccessControl) -> PathRouter:
    router = PathRouter((e.method, e.path, bind(e)) for e in ENDPOINTS)
    router.state.app_context = app_context
    router.state.access = access
    router.state.endpoints = ENDPOINTS
    return router
