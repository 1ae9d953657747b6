"""The gateway: status, nodes, backups, plugins, configuration, comparisons."""

from __future__ import annotations

from ductile.http.route_table.rows import action, change, get

# fmt: off
SYSTEM = (
    get("/", None, "system.show_root", "RootPage"),
    get("/healthz", None, "healthz.show_health", {200: "Health", 503: "Health"}),
    get("/metrics", "system:ro", "metrics.show_metrics", "MetricsText",
        is_public=lambda settings: settings.api.metrics == "public"),
    get("/system/status", "system:ro", "system.show_status", "Status", "StatusQuery"),
    get("/system/overview", "system:ro", "system.show_overview", "Overview"),
    get("/nodes", "system:ro", "nodes.list_nodes", "ClusterNodes"),
    change("/node/{name}/drain", "system:rw", "nodes.drain_node", "NodeAction", "node.drain"),
    change("/node/{name}/resume", "system:rw", "nodes.resume_node", "NodeAction", "node.resume"),
    change("/node/{name}/forget", "system:rw", "nodes.forget", "NodeAction", "node.forget"),
    change("/nodes/reload", "system:rw", "nodes.reload_nodes", "NodeReloads", "config.reload"),
    get("/config/view", "system:ro", "system.view_config", "ConfigView"),
    get("/system/reload", "system:rw", "system.preview_reload", "Reload"),
    change("/system/reload", "system:rw", "system.reload", "Reload", "config.reload"),
    get("/system/backup", "system:ro", "system.show_backup", "Backup", "BackupQuery"),
    change("/system/backup", "system:rw", "system.start_backup",
        {202: "Backup", 200: "BackupPlan"}, "backup.create", "BackupBody"),
    get("/system/plugin-facts/{plugin}", "jobs:ro", "plugins.list_facts", "Facts", "FactQuery"),
    change("/plugins/{name}/state", "system:rw", "plugins.change_state",
        action("PluginStateChange"),
        "plugin.state", "PluginStateBody"),
)

DISCOVERY = (
    get("/plugins", "any", "plugins.list_plugins", "Plugins"),
    get("/plugin/{plugin}", "any", "plugins.show_plugin", "PluginDetail"),
    get("/plugin/{plugin}/openapi.json", "any", "plugins.show_plugin_openapi", "OpenApi"),
    get("/skills", "any", "discovery.list_skills", "Skills"),
    get("/openapi.json", "any", "discovery.show_openapi", "OpenApi"),
    get("/docs", None, "pages.docs.show_docs", "DocsPage"),
    get("/.well-known/ai-plugin.json", "any", "discovery.show_ai_plugin", "AiPlugin"),
)

AUTHORING = (
    get("/config/check", "system:ro", "authoring.config.check_config", "ConfigCheck"),
    get("/config/history", "system:ro", "authoring.config.list_history", "Snapshots",
        "HistoryQuery"),
    get("/config/diff", "system:ro", "authoring.config.diff_config", "ConfigDiff", "DiffQuery"),
    get("/config/plan", "system:ro", "authoring.config.plan_config", "ConfigPlan", "PlanQuery"),
    get("/config/watch", "system:ro", "authoring.config.watch_config", "ConfigWatch", "WatchQuery"),
    change("/config/apply", "system:rw", "authoring.config.apply_config", "ConfigApplied",
        "config.apply", "ApplyBody"),
    change("/config/revert", "*", "authoring.config.revert_config", "ConfigApplied",
        "config.revert", "RevertBody"),
    change("/config/set", "*", "authoring.config.set_setting", "SettingChanged", "config.set",
        "SettingBody"),
    change("/plugins", "*", "authoring.plugins.create_plugin",
        {201: "PluginCreated", 200: "PluginCreated"}, "plugin.create", "NewPluginBody"),
    get("/plugins/{plugin}/validate", "system:ro", "authoring.plugins.validate_plugin",
        "PluginInspection"),
    change("/plugins/{plugin}/test/{command}", "plugin", "authoring.plugins.test_plugin",
        "PluginTrial", "plugin.test", "PluginTestBody"),
)

COMPARISONS = (
    get("/pipelines/{name}/compare", "system:ro", "pipelines.compare.compare_runs",
        "RunComparison", "RunComparisonQuery"),
    get("/job/{job_id}/bundle", "system:ro", "jobs.bundle_job", "JobBundle"),
    change("/plugins/{plugin}/compare", "jobs:ro", "authoring.compare.compare_plugin",
        "PluginComparison", "plugin.compare", "PluginComparisonBody"),
)
