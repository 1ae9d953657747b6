"""The route table: the only list of the API's routes.

A row binds a method and a path to the scope of a token, a handler, and the models of its query,
body and responses, which are the only source for parsing and for OpenAPI. Rows name handlers and
models, so that the start of a gateway does not wait for about 130 classes and for the modules of
routes that no client uses: see `Endpoint`.
"""

from __future__ import annotations

from functools import partial

from ductile.core.agents.reminder import LARGEST_PAYLOAD
from ductile.http.endpoint import Endpoint
from ductile.http.requests import InvalidJson

_get, _post, _delete = (partial(Endpoint, method) for method in ("GET", "POST", "DELETE"))
_KEY = ("Idempotency-Key",)


def _action(model: str) -> dict[int, str]:
    """Return the responses of an action: accepted, or with `dry_run` planned."""
    return {202: model, 200: model}


_JOBS = (
    _post(
        "/plugin/{plugin}/{command}",
        "plugin",
        "jobs.trigger",
        {202: "JobQueued", 200: "JobPlan"},
        body="TriggerBody",
        allow_trailing=True,
        headers=_KEY,
    ),
    _get("/job/{job_id}", "jobs:ro", "jobs.show_job", "Job", query="JobWaitQuery"),
    _get("/job/{job_id}/tree", "jobs:ro", "jobs.show_tree", "JobTree", query="JobTreeQuery"),
    _get("/job/{job_id}/why", "jobs:ro", "jobs.explain", "JobReasons"),
    _get(
        "/job/{job_id}/log/stream",
        "jobs:ro",
        "streams.job_log.stream_job_log",
        "JobLogStream",
        headers=("Last-Event-ID",),
    ),
    _post(
        "/job/{job_id}/cancel",
        "jobs:rw",
        "jobs.cancel_job",
        _action("JobCancellation"),
        body="CancelBody",
        audit="job.cancel",
    ),
    _post(
        "/job/{job_id}/retry",
        "jobs:rw",
        "jobs.retry_job",
        _action("JobRetry"),
        body="ActionBody",
        headers=_KEY,
        audit="job.retry",
    ),
    _post(
        "/job/{job_id}/replay",
        "jobs:rw",
        "jobs.replay_job",
        _action("JobReplay"),
        body="ReplayBody",
        headers=_KEY,
        audit="job.replay",
    ),
    _get("/jobs", "jobs:ro", "jobs.list_jobs", "JobPage", query="JobListQuery"),
    _get("/job-ids", "jobs:ro", "jobs.list_ids", "JobIds", query="JobIdQuery"),
    _get("/queue", "jobs:ro", "jobs.list_queue", "Queue", query="QueueQuery"),
    _get("/job-logs", "jobs:ro", "jobs.list_attempts", "AttemptPage", query="JobLogQuery"),
    _post(
        "/jobs/cancel",
        "jobs:rw",
        "jobs.cancel_jobs",
        "BulkResult",
        body="BulkBody",
        audit="job.cancel_many",
    ),
    _post(
        "/jobs/retry",
        "jobs:rw",
        "jobs.retry_jobs",
        "BulkResult",
        body="BulkBody",
        headers=_KEY,
        audit="job.retry_many",
    ),
    _get(
        "/analytics/summary",
        "jobs:ro",
        "analytics.show_summary",
        "AnalyticsSummary",
        query="SummaryQuery",
    ),
    _get("/analytics/hours", "jobs:ro", "analytics.show_hours", "AnalyticsHours"),
    _get("/analytics/queue", "jobs:ro", "analytics.show_queue", "AnalyticsQueue"),
)

_PIPELINES = (
    _get("/pipelines", "any", "pipelines.list_pipelines", "Pipelines"),
    _get("/pipeline/{name}", "any", "pipelines.show_pipeline", "Pipeline"),
    _post(
        "/pipeline/{name}",
        "plugin:rw",
        "pipelines.start_pipeline",
        {202: "PipelineStarted", 200: "PipelineOutcome | PipelinePlan"},
        query="PipelineStartQuery",
        body="PipelineStartBody",
        allow_trailing=True,
        headers=_KEY,
    ),
    _get(
        "/pipeline-instance/{instance_id}",
        "jobs:ro",
        "pipelines.show_run",
        "Instance",
        query="RunWaitQuery",
    ),
    _get("/pipeline-runs", "jobs:ro", "runs.list_runs", "Runs", query="RunFilterQuery"),
    _get("/pipeline-runs/{run_id}", "jobs:ro", "runs.show_run", "Run", query="RunDetailQuery"),
    _post(
        "/pipeline-runs/{run_id}/cancel",
        "jobs:rw",
        "runs.cancel",
        _action("RunAction"),
        body="ActionBody",
        audit="run.cancel",
    ),
    _post(
        "/pipeline-runs/{run_id}/retry",
        "jobs:rw",
        "runs.retry",
        _action("RunAction"),
        body="ActionBody",
        headers=_KEY,
        audit="run.retry",
    ),
    _get(
        "/approvals", "approvals:ro", "waits.approvals.listing", "Approvals", query="ApprovalQuery"
    ),
    _get("/approvals/{approval_id}", "approvals:ro", "waits.approvals.show", "Approval"),
    _post(
        "/approvals/{approval_id}/approve",
        "approvals:rw",
        "waits.approvals.approve",
        _action("ApprovalAction"),
        body="DecisionBody",
        headers=_KEY,
        audit="approval.approve",
    ),
    _post(
        "/approvals/{approval_id}/reject",
        "approvals:rw",
        "waits.approvals.reject",
        _action("ApprovalAction"),
        body="DecisionBody",
        headers=_KEY,
        audit="approval.reject",
    ),
)

_SCHEDULES = (
    _get("/scheduler/jobs", "jobs:ro", "schedules.list_schedules", "Schedules"),
    _get("/scheduler/next", "jobs:ro", "schedules.list_next_fires", "Fires", query="NextFireQuery"),
    _get(
        "/scheduler/explain",
        "jobs:ro",
        "schedules.explain_occurrences",
        "Occurrences",
        query="ScheduleHistoryQuery",
    ),
    _post(
        "/scheduler/{plugin}/{schedule}/pause",
        "system:rw",
        "schedules.pause_schedule",
        "SchedulePause",
        body="ActionBody",
        audit="schedule.pause",
    ),
    _post(
        "/scheduler/{plugin}/{schedule}/resume",
        "system:rw",
        "schedules.resume_schedule",
        "SchedulePause",
        body="ActionBody",
        audit="schedule.resume",
    ),
    _get("/system/breaker/{plugin}", "jobs:ro", "schedules.list_breakers", "Breakers"),
    _post(
        "/system/reset/{plugin}",
        "system:rw",
        "schedules.reset_breakers",
        "BreakerReset",
        body="ActionBody",
        audit="breaker.reset",
    ),
)

_PAUSES = (
    _get("/pauses", "jobs:ro", "flow.pauses.list_pauses", "Pauses"),
    *(
        _post(f"{path}/{verb}", "system:rw", handler, model, body=body, audit=f"{noun}.{verb}")
        for noun, path, pause, resume in (
            ("plugin", "/plugins/{name}", "flow.pauses.pause_plugin", "flow.pauses.resume_plugin"),
            (
                "pipeline",
                "/pipelines/{name}",
                "flow.pauses.pause_pipeline",
                "flow.pauses.resume_pipeline",
            ),
            ("system", "/system", "flow.pauses.pause_system", "flow.pauses.resume_system"),
        )
        for verb, handler, model, body in (
            ("pause", pause, "Pause", "PauseBody"),
            ("resume", resume, "Resumed", "ActionBody"),
        )
    ),
)

_ALERTS = (
    _get("/alerts", "jobs:ro", "alerts.rules.list_alerts", "AlertRules"),
    _get("/alerts/{name}", "jobs:ro", "alerts.rules.show_alert", "AlertRuleDetail"),
    _post(
        "/alerts/{name}/test",
        "system:rw",
        "alerts.rules.test_alert",
        _action("AlertTest"),
        body="ActionBody",
        audit="alert.test",
    ),
    _post(
        "/alerts/{name}/silence",
        "system:rw",
        "alerts.rules.silence_alert",
        "AlertSilence",
        body="SilenceBody",
        audit="alert.silence",
    ),
    _post(
        "/alerts/{name}/unsilence",
        "system:rw",
        "alerts.rules.unsilence_alert",
        "AlertSilence",
        body="ActionBody",
        audit="alert.unsilence",
    ),
)

_EVENTS = (
    _get("/notices", "events:ro", "streams.events.list_notices", "Notices", query="NoticeQuery"),
    _get(
        "/events",
        "events:ro",
        "streams.events.stream_events",
        "EventStream",
        query="EventQuery",
        headers=("Last-Event-ID",),
    ),
)

_SYSTEM = (
    _get("/", None, "system.show_root", "RootPage"),
    _get("/healthz", None, "healthz.show_health", {200: "Health", 503: "Health"}),
    _get(
        "/metrics",
        "system:ro",
        "metrics.show_metrics",
        "MetricsText",
        is_public=lambda settings: settings.api.metrics == "public",
    ),
    _get("/system/status", "system:ro", "system.show_status", "Status", query="StatusQuery"),
    _get("/system/overview", "system:ro", "system.show_overview", "Overview"),
    _get("/nodes", "system:ro", "cluster.nodes.list_nodes", "ClusterNodes"),
    _post(
        "/node/{name}/drain",
        "system:rw",
        "cluster.nodes.drain_node",
        "NodeAction",
        body="ActionBody",
        audit="node.drain",
    ),
    _post(
        "/node/{name}/resume",
        "system:rw",
        "cluster.nodes.resume_node",
        "NodeAction",
        body="ActionBody",
        audit="node.resume",
    ),
    _post(
        "/node/{name}/forget",
        "system:rw",
        "cluster.nodes.forget",
        "NodeAction",
        body="ActionBody",
        audit="node.forget",
    ),
    _post(
        "/nodes/reload",
        "system:rw",
        "cluster.nodes.reload_nodes",
        "NodeReloads",
        body="ActionBody",
        audit="config.reload",
    ),
    _get("/config/view", "system:ro", "system.view_config", "ConfigView"),
    _get("/system/reload", "system:rw", "system.preview_reload", "Reload"),
    _post(
        "/system/reload",
        "system:rw",
        "system.reload",
        "Reload",
        body="ActionBody",
        audit="config.reload",
    ),
    _get("/system/backup", "system:ro", "system.show_backup", "Backup", query="BackupQuery"),
    _post(
        "/system/backup",
        "system:rw",
        "system.start_backup",
        {202: "Backup", 200: "BackupPlan"},
        body="BackupBody",
        audit="backup.create",
    ),
    _get(
        "/system/plugin-facts/{plugin}", "jobs:ro", "facts.list_facts", "Facts", query="FactQuery"
    ),
    _post(
        "/plugins/{name}/state",
        "system:rw",
        "facts.change_state",
        _action("PluginStateChange"),
        body="PluginStateBody",
        audit="plugin.state",
    ),
)

_DISCOVERY = (
    _get("/plugins", "any", "system.list_plugins", "Plugins"),
    _get("/plugin/{plugin}", "any", "discovery.show_plugin", "PluginDetail"),
    _get("/plugin/{plugin}/openapi.json", "any", "discovery.show_plugin_openapi", "OpenApi"),
    _get("/skills", "any", "discovery.list_skills", "Skills"),
    _get("/openapi.json", "any", "discovery.show_openapi", "OpenApi"),
    _get("/docs", None, "pages.docs.show_docs", "DocsPage"),
    _get("/.well-known/ai-plugin.json", "any", "discovery.show_ai_plugin", "AiPlugin"),
)

_AUTHORING = (
    _get("/config/check", "system:ro", "authoring.config.check_config", "ConfigCheck"),
    _get(
        "/config/history",
        "system:ro",
        "authoring.config.list_history",
        "Snapshots",
        query="HistoryQuery",
    ),
    _get(
        "/config/diff",
        "system:ro",
        "authoring.config.diff_config",
        "ConfigDiff",
        query="DiffQuery",
    ),
    _get(
        "/config/plan",
        "system:ro",
        "authoring.config.plan_config",
        "ConfigPlan",
        query="PlanQuery",
    ),
    _get(
        "/config/watch",
        "system:ro",
        "authoring.config.watch_config",
        "ConfigWatch",
        query="WatchQuery",
    ),
    _post(
        "/config/apply",
        "system:rw",
        "authoring.config.apply_config",
        "ConfigApplied",
        body="ApplyBody",
        audit="config.apply",
    ),
    _post(
        "/config/revert",
        "*",
        "authoring.config.revert_config",
        "ConfigApplied",
        body="RevertBody",
        audit="config.revert",
    ),
    _post(
        "/config/set",
        "*",
        "authoring.config.set_setting",
        "SettingChanged",
        body="SettingBody",
        audit="config.set",
    ),
    _post(
        "/plugins",
        "*",
        "authoring.plugins.create_plugin",
        {201: "PluginCreated", 200: "PluginCreated"},
        body="NewPluginBody",
        audit="plugin.create",
    ),
    _get(
        "/plugins/{plugin}/validate",
        "system:ro",
        "authoring.plugins.validate_plugin",
        "PluginInspection",
    ),
    _post(
        "/plugins/{plugin}/test/{command}",
        "plugin",
        "authoring.plugins.test_plugin",
        "PluginTrial",
        body="PluginTestBody",
        audit="plugin.test",
    ),
)

_COMPARISONS = (
    _get(
        "/pipelines/{name}/compare",
        "system:ro",
        "compare.runs.compare_runs",
        "RunComparison",
        query="RunComparisonQuery",
    ),
    _get("/job/{job_id}/bundle", "system:ro", "compare.bundles.bundle_job", "JobBundle"),
    _post(
        "/plugins/{plugin}/compare",
        "jobs:ro",
        "compare.plugins.compare_plugin",
        "PluginComparison",
        body="PluginComparisonBody",
        audit="plugin.compare",
    ),
)

_TOKENS = (
    _get("/audit", "system:ro", "audit.list_audit_entries", "AuditPage", query="AuditQuery"),
    _get("/tokens", "system:ro", "tokens.list_tokens", "Tokens"),
    _post(
        "/tokens",
        "*",
        "tokens.create_token",
        {201: "TokenCreated", 200: "TokenPlan"},
        body="NewTokenBody",
        audit="token.create",
    ),
    _post(
        "/token/{which}/revoke",
        "*",
        "tokens.revoke_token",
        "TokenChanged",
        body="ActionBody",
        audit="token.revoke",
    ),
    _post(
        "/token/{which}/rotate",
        "*",
        "tokens.rotate_token",
        "TokenChanged",
        body="TokenRotationBody",
        audit="token.rotate",
    ),
)

_UI = (
    _get("/ui/session", "any", "pages.ui.show_session", "UiSession"),
    _post(
        "/ui/session",
        None,
        "pages.ui.open_session",
        "UiSession",
        body="LoginBody",
        audit="session.open",
    ),
    _delete(
        "/ui/session", "any", "pages.ui.close_session", "UiSessionClosed", audit="session.close"
    ),
    _delete(
        "/ui/sessions",
        "*",
        "pages.ui.close_sessions",
        "UiSessionsClosed",
        audit="session.close_all",
    ),
    _post("/ui/code", "*", "pages.ui.create_login_code", {201: "UiCode"}, audit="session.code"),
)

_RELAYS = (
    _get("/relays", "jobs:ro", "relays.list_relays", "Relays", query="RelayQuery"),
    _post(
        "/relays",
        "system:rw",
        "relays.send_relay",
        _action("RelaySent"),
        body="RelayBody",
        headers=_KEY,
        audit="relay.send",
    ),
    _post(
        "/relays/retry",
        "jobs:rw",
        "relays.retry_dead_relays",
        _action("RelaysRetry"),
        body="ActionBody",
        audit="relay.retry_many",
    ),
    _post(
        "/relays/discard",
        "jobs:rw",
        "relays.discard_dead_relays",
        _action("RelaysDiscard"),
        body="DiscardBody",
        audit="relay.discard_many",
    ),
    _post(
        "/relay/{relay_id}/discard",
        "jobs:rw",
        "relays.discard_relay",
        _action("RelayDiscard"),
        body="ActionBody",
        audit="relay.discard",
    ),
    _post(
        "/relay/{relay_id}/retry",
        "jobs:rw",
        "relays.retry_relay",
        _action("RelayRetry"),
        body="ActionBody",
        audit="relay.retry",
    ),
)

_AGENTS = (
    _post(
        "/gateway/heartbeat",
        "agents:rw",
        "agents.heartbeats.record_heartbeat",
        "HeartbeatAccepted",
        raw_body="Heartbeat",
        is_public=lambda settings: settings.gateway.open,
    ),
    _post(
        "/gateway/messages",
        "agents:rw",
        "agents.heartbeats.publish_message",
        {202: "MessageAccepted"},
        raw_body="DecisionLog",
        is_public=lambda settings: settings.gateway.open,
    ),
    _get(
        "/gateway/heartbeats",
        "agents:ro",
        "agents.heartbeats.list_agents",
        "Agents",
        query="AgentQuery",
    ),
    _get(
        "/gateway/capabilities",
        "agents:ro",
        "agents.heartbeats.list_capabilities",
        "Capabilities",
        query="CapabilityQuery",
    ),
    _get(
        "/gateway/cron",
        "agents:ro",
        "agents.reminders.list_reminders",
        "Reminders",
        query="ReminderQuery",
    ),
    _post(
        "/gateway/cron",
        "agents:rw",
        "agents.reminders.create_reminder",
        {201: "Reminder", 200: "Reminder"},
        body="NewReminderBody",
        max_body=2 * LARGEST_PAYLOAD,
        json_error=InvalidJson,
    ),
    _post(
        "/gateway/cron/{reminder_id}/forget",
        "agents:rw",
        "agents.reminders.forget_reminder",
        "Reminder",
        body="ActionBody",
        max_body=2 * LARGEST_PAYLOAD,
        json_error=InvalidJson,
    ),
    _get(
        "/gateway/deliveries",
        "agents:ro",
        "agents.deliveries.list_deliveries",
        "Deliveries",
        query="DeliveryQuery",
    ),
    _get(
        "/gateway/deliveries/{delivery_id}",
        "agents:ro",
        "agents.deliveries.show_delivery",
        "DeliveryDetail",
    ),
    _post(
        "/gateway/deliveries",
        "agents:rw",
        "agents.deliveries.send_delivery",
        {202: "DeliverySent", 200: "DeliveryPlan"},
        body="DeliveryBody",
        headers=_KEY,
    ),
    _post(
        "/gateway/deliveries/retry",
        "agents:rw",
        "agents.deliveries.retry_deliveries",
        _action("DeliveriesRetry"),
        body="RedeliveryBody",
        audit="delivery.retry_many",
    ),
    _post(
        "/gateway/deliveries/discard",
        "agents:rw",
        "agents.deliveries.discard_deliveries",
        _action("DeliveriesDiscard"),
        body="DiscardBody",
        audit="delivery.discard_many",
    ),
    _post(
        "/gateway/deliveries/{delivery_id}/discard",
        "agents:rw",
        "agents.deliveries.discard_delivery",
        _action("DeliveryDiscard"),
        body="ActionBody",
        audit="delivery.discard",
    ),
    _post(
        "/gateway/deliveries/{delivery_id}/retry",
        "agents:rw",
        "agents.deliveries.retry_delivery",
        _action("DeliveryRetry"),
        body="ActionBody",
        audit="delivery.retry",
    ),
    _get("/gateway/webhook-configs", "agents:ro", "agents.webhooks.list_webhooks", "Webhooks"),
    _post(
        "/gateway/webhook-configs",
        "agents:rw",
        "agents.webhooks.create_webhook",
        {201: "WebhookCreated", 200: "WebhookPlan"},
        body="NewWebhookBody",
        audit="webhook.create",
    ),
    _delete(
        "/gateway/webhook-configs/{webhook_id}",
        "agents:rw",
        "agents.webhooks.remove_webhook",
        "WebhookRemoved",
        query="WebhookRemovalQuery",
        audit="webhook.remove",
    ),
    _post(
        "/gateway/webhooks/{webhook_id}",
        None,
        "agents.webhooks.receive_event",
        {202: "EventAccepted"},
        raw_body="",
    ),
)

ENDPOINTS = (
    *_JOBS,
    *_PIPELINES,
    *_SCHEDULES,
    *_PAUSES,
    *_ALERTS,
    *_EVENTS,
    *_SYSTEM,
    *_DISCOVERY,
    *_AUTHORING,
    *_COMPARISONS,
    *_TOKENS,
    *_UI,
    *_RELAYS,
    *_AGENTS,
)

PAGES = (
    _get("/ui", None, "pages.ui.redirect_to_page", {}),
    _get("/ui/", None, "pages.ui.show_page", {}),
    _get("/ui/{page}", None, "pages.ui.show_page", {}),
    _get("/ui/{page}/{id}", None, "pages.ui.show_page", {}),
    _get("/ui/assets/{name}", None, "pages.ui.show_asset", {}),
    _get("/approve/{token}", None, "pages.approve.show", {}),
    _post("/approve/{token}", None, "pages.approve.decide", {}, raw_body=""),
    _post("/mcp", "any", "agents.mcp.serve", {}, raw_body=""),
)
"""What is not a part of the API: the dashboard at each of its addresses with its files, the page
that decides an approval, and MCP, whose calls are requests to the routes above."""
