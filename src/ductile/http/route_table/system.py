"""The gateway: status, nodes, backups, plugins, configuration, comparisons."""

from __future__ import annotations

from ductile.http.route_table.rows import action, get, post

SYSTEM = (
    get("/", None, "system.show_root", "RootPage"),
    get("/healthz", None, "healthz.show_health", {200: "Health", 503: "Health"}),
    get(
        "/metrics",
        "system:ro",
        "metrics.show_metrics",
        "MetricsText",
        is_public=lambda settings: settings.api.metrics == "public",
    ),
    get("/system/status", "system:ro", "system.show_status", "Status", query="StatusQuery"),
    get("/system/overview", "system:ro", "system.show_overview", "Overview"),
    get("/nodes", "system:ro", "nodes.list_nodes", "ClusterNodes"),
    post(
        "/node/{name}/drain",
        "system:rw",
        "nodes.drain_node",
        "NodeAction",
        body="ActionBody",
        audit="node.drain",
    ),
    post(
        "/node/{name}/resume",
        "system:rw",
        "nodes.resume_node",
        "NodeAction",
        body="ActionBody",
        audit="node.resume",
    ),
    post(
        "/node/{name}/forget",
        "system:rw",
        "nodes.forget",
        "NodeAction",
        body="ActionBody",
        audit="node.forget",
    ),
    post(
        "/nodes/reload",
        "system:rw",
        "nodes.reload_nodes",
        "NodeReloads",
        body="ActionBody",
        audit="config.reload",
    ),
    get("/config/view", "system:ro", "system.view_config", "ConfigView"),
    get("/system/reload", "system:rw", "system.preview_reload", "Reload"),
    post(
        "/system/reload",
        "system:rw",
        "system.reload",
        "Reload",
        body="ActionBody",
        audit="config.reload",
    ),
    get("/system/backup", "system:ro", "system.show_backup", "Backup", query="BackupQuery"),
    post(
        "/system/backup",
        "system:rw",
        "system.start_backup",
        {202: "Backup", 200: "BackupPlan"},
        body="BackupBody",
        audit="backup.create",
    ),
    get("/system/plugin-facts/{plugin}", "jobs:ro", "facts.list_facts", "Facts", query="FactQuery"),
    post(
        "/plugins/{name}/state",
        "system:rw",
        "facts.change_state",
        action("PluginStateChange"),
        body="PluginStateBody",
        audit="plugin.state",
    ),
)

DISCOVERY = (
    get("/plugins", "any", "system.list_plugins", "Plugins"),
    get("/plugin/{plugin}", "any", "discovery.show_plugin", "PluginDetail"),
    get("/plugin/{plugin}/openapi.json", "any", "discovery.show_plugin_openapi", "OpenApi"),
    get("/skills", "any", "discovery.list_skills", "Skills"),
    get("/openapi.json", "any", "discovery.show_openapi", "OpenApi"),
    get("/docs", None, "pages.docs.show_docs", "DocsPage"),
    get("/.well-known/ai-plugin.json", "any", "discovery.show_ai_plugin", "AiPlugin"),
)

AUTHORING = (
    get("/config/check", "system:ro", "authoring.config.check_config", "ConfigCheck"),
    get(
        "/config/history",
        "system:ro",
        "authoring.config.list_history",
        "Snapshots",
        query="HistoryQuery",
    ),
    get(
        "/config/diff",
        "system:ro",
        "authoring.config.diff_config",
        "ConfigDiff",
        query="DiffQuery",
    ),
    get(
        "/config/plan",
        "system:ro",
        "authoring.config.plan_config",
        "ConfigPlan",
        query="PlanQuery",
    ),
    get(
        "/config/watch",
        "system:ro",
        "authoring.config.watch_config",
        "ConfigWatch",
        query="WatchQuery",
    ),
    post(
        "/config/apply",
        "system:rw",
        "authoring.config.apply_config",
        "ConfigApplied",
        body="ApplyBody",
        audit="config.apply",
    ),
    post(
        "/config/revert",
        "*",
        "authoring.config.revert_config",
        "ConfigApplied",
        body="RevertBody",
        audit="config.revert",
    ),
    post(
        "/config/set",
        "*",
        "authoring.config.set_setting",
        "SettingChanged",
        body="SettingBody",
        audit="config.set",
    ),
    post(
        "/plugins",
        "*",
        "authoring.plugins.create_plugin",
        {201: "PluginCreated", 200: "PluginCreated"},
        body="NewPluginBody",
        audit="plugin.create",
    ),
    get(
        "/plugins/{plugin}/validate",
        "system:ro",
        "authoring.plugins.validate_plugin",
        "PluginInspection",
    ),
    post(
        "/plugins/{plugin}/test/{command}",
        "plugin",
        "authoring.plugins.test_plugin",
        "PluginTrial",
        body="PluginTestBody",
        audit="plugin.test",
    ),
)

COMPARISONS = (
    get(
        "/pipelines/{name}/compare",
        "system:ro",
        "pipelines.compare.compare_runs",
        "RunComparison",
        query="RunComparisonQuery",
    ),
    get("/job/{job_id}/bundle", "system:ro", "jobs.bundle_job", "JobBundle"),
    post(
        "/plugins/{plugin}/compare",
        "jobs:ro",
        "authoring.compare.compare_plugin",
        "PluginComparison",
        body="PluginComparisonBody",
        audit="plugin.compare",
    ),
)
