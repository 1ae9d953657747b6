"""Responses about the gateway: status, plugins, configuration, tokens, backups, relays, events."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field, RootModel

from ductile.core.delivery.retry_policy import DeliveryStatus
from ductile.http.models.responses.fields import OMITTED, JobState, ResponseModel, Timestamp


class RootPageModel(ResponseModel):
    """The gateway's name and links."""

    name: str
    version: str
    uptime_seconds: int
    links: dict[str, str]


class FailingPartModel(ResponseModel):
    """A part of the gateway that fails now."""

    part: str
    """`ledger`, `ledger file`, `accept`, `settle`, `commit`, `dispatcher`, or a loop."""
    error: str
    code: str
    critical: bool
    """Whether jobs cannot be accepted or settled because of it."""


class HealthModel(ResponseModel):
    """The health of the gateway; unknown callers see the status alone."""

    status: Literal["ok", "error"]
    version: str = OMITTED
    uptime_seconds: int = OMITTED
    queue_depth: int = OMITTED
    """The number of queued jobs."""
    plugins_loaded: int = OMITTED
    plugins_circuit_open: int = OMITTED
    """The number of plugins with a breaker that is not closed."""
    error: str = OMITTED
    """What is wrong."""
    code: str = OMITTED
    failing: list[FailingPartModel] = OMITTED
    """The parts that fail, critical ones first; omitted if every part works."""


class PauseModel(ResponseModel):
    """A pause; with `dry_run`, what would be paused."""

    kind: Literal["system", "plugin", "pipeline"]
    name: str | None
    """The plugin or pipeline; null for the gateway."""
    paused_at: Timestamp
    paused_by: str
    """`token:NAME`, `user:NAME`, `session:local` or `anonymous`."""
    reason: str | None
    until: Timestamp | None
    """When it ends by itself."""
    dry_run: bool = OMITTED


class PausesModel(ResponseModel):
    """Everything that is paused."""

    pauses: list[PauseModel]


class ResumedModel(ResponseModel):
    """A pause was ended; with `dry_run`, it would be."""

    kind: Literal["system", "plugin", "pipeline"]
    name: str | None
    resumed: bool
    """False if it was not paused."""
    dry_run: bool = OMITTED


class PluginStartModel(ResponseModel):
    """How the jobs of a plugin are started that is to be started warm."""

    mode: Literal["warm", "idle", "cold"]
    """`idle`: warm, but without a zygote at the moment."""
    reason: str | None
    """Why it is not warm."""
    memory_bytes: int
    """The memory of its zygote."""
    slots: int


class PluginSandboxModel(ResponseModel):
    """What the processes of a plugin may touch."""

    level: Literal["best_effort", "enforce"]
    held: list[str]
    """What the kernel holds: files, network, sockets, processes, signals."""
    not_held: dict[str, str]
    """What it does not hold, and why."""
    read: list[str]
    """Besides the plugin's directory, its interpreter and the system's libraries."""
    write: list[str]
    """Besides the workspace and a private temporary directory."""
    network: str | list[int]
    """`none`, `all`, or TCP ports."""
    memory: int | None
    processes: int | None
    cpu_time: float | None
    file_size: int | None


class PluginModel(ResponseModel):
    """A plugin that was found or configured."""

    name: str
    state: Literal["ready", "unhealthy", "refused", "shadowed", "disabled", "available", "missing"]
    reason: str | None
    """Why it is not ready, its pause, or which of its circuit breakers are not closed."""
    paused: PauseModel | None
    version: str = OMITTED
    protocol: int = OMITTED
    commands: dict[str, str]
    """The type of each command."""
    uses: str | None = OMITTED
    parallelism: int | None = OMITTED
    breakers: list[dict[str, Any]] = OMITTED
    """Circuit breakers that are not closed."""
    path: str | None
    environment: str | None = OMITTED
    """The directory of the virtual environment that it runs in."""
    start: PluginStartModel | None = OMITTED
    """Null if each job starts an interpreter or a program of its own."""
    sandbox: PluginSandboxModel | None = OMITTED
    """Null if it has none."""
    description: str = OMITTED


class PluginsModel(ResponseModel):
    """Every plugin."""

    plugins: list[PluginModel]


class CommandModel(ResponseModel):
    """A command of a plugin."""

    name: str
    type: Literal["read", "write"]
    description: str
    input_schema: Any
    output_schema: Any
    idempotent: bool | None


class PluginDetailModel(ResponseModel):
    """A plugin and its commands."""

    name: str
    state: str
    reason: str | None
    paused: PauseModel | None
    version: str = OMITTED
    protocol: int = OMITTED
    commands: list[CommandModel]
    uses: str | None = OMITTED
    parallelism: int | None = OMITTED
    breakers: list[dict[str, Any]] = OMITTED
    """Circuit breakers that are not closed."""
    path: str | None
    environment: str | None = OMITTED
    """The directory of the virtual environment that it runs in."""
    start: PluginStartModel | None = OMITTED
    """Null if each job starts an interpreter or a program of its own."""
    sandbox: PluginSandboxModel | None = OMITTED
    """Null if it has none."""
    description: str = OMITTED


class CheckupModel(ResponseModel):
    """The result of a plugin's `health` command."""

    healthy: bool
    detail: str | None
    duration_ms: float | None


class LastRunModel(ResponseModel):
    """The last attempt of a plugin."""

    plugin: str
    command: str
    status: JobState
    completed_at: str
    last_error: str | None


class StoredStateModel(ResponseModel):
    """What a plugin has stored between jobs."""

    bytes: int
    updated_at: str | None
    value: Any
    """Redacted; null if it is large."""


class PluginStatusModel(PluginModel):
    """A plugin with its health and last run."""

    health: CheckupModel | None
    last_run: LastRunModel | None
    plugin_state: StoredStateModel | None


class StatusModel(ResponseModel):
    """The state of the gateway, its ledger and its plugins."""

    running_gateway: bool
    version: str
    boot: str
    uptime_seconds: int
    workers: int
    ledger: dict[str, Any]
    health_checked_at: Timestamp | None
    """When the health commands of the plugins ran; null if they have not since the start."""
    queue_depth: int
    approvals: int
    """Decisions that pipelines wait for."""
    waits: int
    """All steps that wait for a decision, an event or a time; their jobs are queued."""
    running: int
    paused: PauseModel | None
    """The pause of the whole gateway."""
    alerts: list[dict[str, Any]]
    """Alerts that fire, as in the overview."""
    undelivered_alerts: list[dict[str, Any]]
    """Messages of alerts that did not arrive."""
    plugins: list[PluginStatusModel]


class OverviewQueueModel(ResponseModel):
    """The numbers of jobs."""

    ready: int
    retrying: int
    approvals: int
    """Decisions that pipelines wait for."""
    waits: int
    """All steps that wait for a decision, an event or a time."""
    running: int


class OverviewModel(ResponseModel):
    """What runs, waits, failed and comes next."""

    at: Timestamp
    running_gateway: bool
    version: str
    name: str
    uptime_seconds: int | None
    workers: int
    plugins: int
    state_dir: str
    queue: OverviewQueueModel
    running: list[dict[str, Any]]
    waiting: list[dict[str, Any]]
    failures: list[dict[str, Any]]
    breakers: list[dict[str, Any]]
    alerts: list[dict[str, Any]]
    """Alerts that fire: rule, group, state, since, count, first_error, last_error, notified_at."""
    held: dict[str, str]
    """Plugins whose jobs wait, and why."""
    next: list[dict[str, Any]]


class ReloadChangesModel(ResponseModel):
    """Names that a reload would add, remove or change."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class ReloadModel(ResponseModel):
    """The configuration is in force; with `dry_run`, it would be."""

    status: Literal["ok"]
    warnings: list[str]
    refused: dict[str, str]
    """Plugins that cannot be loaded, and why."""
    dry_run: bool = OMITTED
    changes: dict[str, ReloadChangesModel] = OMITTED


class ConfigCheckModel(ResponseModel):
    """Whether the configuration on disk can run, with its errors or its warnings."""

    ok: bool
    problems: list[dict[str, Any]]


class FireTimeModel(ResponseModel):
    """When a schedule fires, in UTC and in its time zone."""

    fires_at: str
    local: str


class FireListModel(ResponseModel):
    """How many fires, and the first of them."""

    count: int
    first: list[FireTimeModel]


class SchedulePlanModel(ResponseModel):
    """A schedule that differs, and its fires of the next 7 days that appear and disappear."""

    schedule: str
    change: Literal["added", "removed", "changed"]
    fields: list[str]
    before: str | None
    after: str | None
    paused: bool
    appear: FireListModel
    disappear: FireListModel
    compared_until: str
    """Earlier than 7 days if the schedule fires more than 2000 times in them."""
    exact: bool
    """False if the ends of jobs move the fires: `every` counts from there."""


class NamedChangeModel(ResponseModel):
    """A named part of the configuration that appears, disappears or differs."""

    name: str
    change: Literal["added", "removed", "changed"]
    fields: list[str]


class GraphPlanModel(ResponseModel):
    """Where events go, as edges such as `feed --item.new--> store`."""

    edges_added: list[str]
    edges_removed: list[str]
    pipelines: list[NamedChangeModel]
    steps: list[NamedChangeModel]


class PluginPlanModel(ResponseModel):
    """What changes for a plugin."""

    plugin: str
    before: str
    """`loaded`, `disabled`, `absent`, or `refused:` and why."""
    after: str
    differs: list[str]


class EndpointChangeModel(ResponseModel):
    """A webhook endpoint that opens, closes or differs."""

    change: Literal["opens", "closes", "changed"]
    fields: list[str]
    path: str


class TokenChangeModel(ResponseModel):
    """A token that opens, closes or differs."""

    change: Literal["opens", "closes", "changed"]
    fields: list[str]
    token: str
    scopes_before: list[str] | None
    scopes_after: list[str] | None


class SettingPlanModel(ResponseModel):
    """A setting with its values before and after."""

    setting: str
    before: Any
    after: Any


class RestartPlanModel(SettingPlanModel):
    """A setting whose new value needs a restart."""

    message: str


class QueuedJobsChangeModel(ResponseModel):
    """Queued jobs that the change concerns, by plugin, command and step."""

    plugin: str
    command: str
    pipeline: str | None
    step: str | None
    waiting: bool
    jobs: int
    example: str
    effect: Literal["held", "ended", "fails", "released", "routed differently"]
    reason: str


class ConfigPlanModel(ResponseModel):
    """What the files would change if they were put in force."""

    changed: bool
    config: str
    made_at: str
    restart: list[RestartPlanModel]
    """With an entry, a reload is refused: these settings need a restart."""
    schedules: list[SchedulePlanModel]
    graph: GraphPlanModel
    plugins: list[PluginPlanModel]
    webhooks: list[EndpointChangeModel]
    tokens: list[TokenChangeModel]
    secrets: list[str]
    """Places whose secret differs; never a value."""
    settings: list[SettingPlanModel]
    jobs: list[QueuedJobsChangeModel]
    warnings: list[str]
    refused: dict[str, str]
    changes: dict[str, ReloadChangesModel]


class SnapshotModel(ResponseModel):
    """A configuration that was in force."""

    id: str
    config_hash: str
    created_at: str
    """When it was put in force first."""
    adopted_at: str
    """When it was put in force last."""


class SnapshotsModel(ResponseModel):
    """Configurations that were in force, newest first."""

    snapshots: list[SnapshotModel]


class ConfigDiffModel(ResponseModel):
    """What differs between two configurations that were in force, redacted."""

    from_: str = Field(alias="from")
    to: str
    settings: list[SettingPlanModel]
    secrets: list[str]
    """Places whose secret differs; never a value."""


class SettingChangedModel(ResponseModel):
    """The setting is changed in its file; with `dry_run`, it would be."""

    path: str
    file: str
    changed: bool
    diff: str
    warnings: list[str]
    dry_run: bool = OMITTED


class PluginCreatedModel(ResponseModel):
    """The plugin's files are written; with `dry_run`, they would be."""

    plugin: str
    language: str
    directory: str
    files: list[str]
    dry_run: bool


class PluginInspectionModel(ResponseModel):
    """The problems of a plugin's files."""

    plugin: str
    directory: str
    ok: bool
    problems: list[dict[str, Any]]


class PluginTrialModel(ResponseModel):
    """The result of a test, with what a gateway would do next."""

    model_config = ConfigDict(extra="allow")

    plugin: str
    command: str
    status: str
    error: str | None


class ConfigViewModel(ResponseModel):
    """The configuration in force."""

    config: dict[str, Any]
    """Every key with its value or default; secrets are [REDACTED]."""
    plugins: dict[str, Any]
    """The same as in `config`."""
    config_hash: str
    snapshot_id: str | None
    compiled_routes: dict[str, dict[str, Any]]
    """By pipeline: its source, its condition and its steps."""
    routes: list[dict[str, Any]]
    warnings: list[str]


class SkillModel(ResponseModel):
    """A command or pipeline that an agent can run."""

    name: str
    kind: Literal["command", "pipeline"]
    description: str
    type: str
    method: str
    path: str
    input_schema: Any = OMITTED
    output_schema: Any = OMITTED


class SkillsModel(ResponseModel):
    """Commands and pipelines."""

    skills: list[SkillModel]


class OpenApiModel(ResponseModel):
    """An OpenAPI 3.1 document."""

    openapi: str
    info: dict[str, Any]
    paths: dict[str, Any]
    components: dict[str, Any]
    tags: list[dict[str, Any]] = OMITTED


class AiPluginModel(ResponseModel):
    """The plugin manifest for agents."""

    schema_version: str
    name_for_human: str
    name_for_model: str
    description_for_human: str
    description_for_model: str
    auth: dict[str, str]
    api: dict[str, str]


class FactModel(ResponseModel):
    """A fact that a plugin has recorded."""

    id: int
    seq: int
    plugin_name: str
    fact_type: str
    job_id: str | None
    command: str | None
    fact: Any
    fact_json: Any
    """The same as `fact`."""
    created_at: Timestamp


class FactsModel(ResponseModel):
    """Facts of a plugin, newest first, and the state they came to."""

    plugin: str
    state: Any
    facts: list[FactModel]
    cursor: int | None
    """For the next page; null on the last one."""


class PluginStateChangeModel(ResponseModel):
    """A key of a plugin's state was set or removed; with `dry_run`, it would be."""

    plugin: str
    key: str
    existed: bool
    """Whether the state had the key before."""
    removed: bool
    dry_run: bool = OMITTED


class NoticeModel(ResponseModel):
    """An event of the event stream."""

    id: int
    topic: str
    type: str
    job_id: str | None
    created_at: Timestamp
    payload: Any


class NoticesModel(ResponseModel):
    """Notices, oldest first."""

    notices: list[NoticeModel]
    cursor: str
    """The `after` of the next page."""


class ClusterNodeModel(ResponseModel):
    """A gateway that uses this ledger. Times are by the database's clock."""

    name: str
    boot: str
    """The id of its current or last lifetime; running jobs name it as their `owner`."""
    state: Literal["running", "draining", "drained", "stopped", "lost"]
    """`lost`: it has not been seen for 15 seconds and has not stopped regularly."""
    version: str
    schema_version: int | None
    """The newest migration that its version knows; null for one that does not register it."""
    config_hash: str
    """Of the settings that nodes have in common: nodes with different values have drifted."""
    labels: dict[str, str]
    plugins: list[str]
    """The plugins whose jobs it runs."""
    pipelines: list[str]
    workers: int
    workspaces: str | None
    """Equal for nodes that share `state.workspaces`; null if workspaces are local."""
    jobs: int
    """The number of jobs that it runs."""
    started_at: Timestamp
    seen_at: Timestamp
    seconds_since_seen: float
    stopped_at: Timestamp | None
    drained_at: Timestamp | None
    """When the operator has drained it."""


class ClusterNodesModel(ResponseModel):
    """The nodes that share the ledger, by name."""

    node: str
    """The node that answers."""
    nodes: list[ClusterNodeModel]
    waiting_migration: str | None
    """A migration of the answering node that waits until no older node runs, and these nodes."""


class NodeActionModel(ResponseModel):
    """A node after an action, or before it with `dry_run`."""

    name: str
    state: Literal["running", "draining", "drained", "stopped", "lost"]
    jobs: int
    """The number of jobs that it still runs."""
    dry_run: bool = OMITTED


class NodeReloadModel(ResponseModel):
    """How one node has reloaded its configuration."""

    name: str
    status: Literal["reloaded", "refused", "failed", "no answer", "would reload"]
    problems: list[str] = OMITTED
    """Why it was refused: the configuration before stays in force."""
    warnings: list[str] = OMITTED


class NodeReloadsModel(ResponseModel):
    """The answer of every node that has not stopped."""

    nodes: list[NodeReloadModel]
    dry_run: bool = OMITTED


class TokenModel(ResponseModel):
    """A token of the ledger."""

    id: str
    name: str
    scopes: list[str]
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    rotated_at: Timestamp | None
    previous_until: Timestamp | None
    """The end of the secret before the last rotation."""
    lease: bool
    """Whether every run is recorded in the audit log."""
    budget: TokenBudgetModel | None
    """Null without a limit."""


class SpendingModel(ResponseModel):
    """A limit of a budget; null is no limit."""

    limit: int | None
    left: int | None


class TokenBudgetModel(ResponseModel):
    """How often a token may start jobs and retry them."""

    runs: SpendingModel
    retries: SpendingModel


class TokensModel(ResponseModel):
    """The tokens of the ledger."""

    tokens: list[TokenModel]


class TokenCreatedModel(TokenModel):
    """The token is created; its secret is shown this once."""

    token: str
    warnings: list[str]
    """Scopes that allow nothing."""


class TokenPlanModel(ResponseModel):
    """With `dry_run`: the token that would be created."""

    dry_run: bool
    name: str
    scopes: list[str]
    warnings: list[str]


class TokenChangedModel(TokenModel):
    """The token is changed; with `dry_run`, it would be."""

    token: str = OMITTED
    """The new secret, shown this once."""
    dry_run: bool = OMITTED


class BackupModel(ResponseModel):
    """The state of the current or the last backup."""

    state: str
    path: str | None
    done: int
    total: int
    made: dict[str, Any] | None
    """The backup, once it is complete."""
    error: str | None
    code: str | None
    details: dict[str, Any]


class BackupPlanModel(ResponseModel):
    """With `dry_run`: where the backup would be written."""

    dry_run: bool
    path: str
    free: int | None
    """Free bytes there."""


class RelayModel(ResponseModel):
    """An event on its way to another gateway."""

    id: str
    instance: str
    job_id: str | None
    event_id: str | None
    event_type: str
    status: DeliveryStatus
    attempt_count: int
    last_attempted_at: Timestamp | None
    next_retry_at: Timestamp | None
    created_at: Timestamp
    error_detail: str | None


class RelaysModel(ResponseModel):
    """Relayed events, newest first."""

    relays: list[RelayModel]


class RelayRetryModel(ResponseModel):
    """The event is sent again; with `dry_run`, it would be."""

    id: str
    was: str
    status: DeliveryStatus = OMITTED
    dry_run: bool = OMITTED


class RelaysRetryModel(ResponseModel):
    """The dead events are sent again; with `dry_run`, they would be."""

    relays: list[str]
    count: int
    more: bool
    """Whether there are more of them."""
    dry_run: bool = OMITTED


class RelayDiscardModel(ResponseModel):
    """The dead event is deleted; with `dry_run`, it would be."""

    id: str
    dry_run: bool = OMITTED


class RelaysDiscardModel(ResponseModel):
    """The dead events are deleted; with `dry_run`, they would be."""

    relays: list[str]
    count: int
    more: bool
    """Whether there may be more of them."""
    dry_run: bool = OMITTED


class EventStreamModel(RootModel[str]):
    """Server-sent events; the connection stays open."""

    media_type: ClassVar[str] = "text/event-stream"


class JobLogStreamModel(RootModel[str]):
    """Server-sent events: `log` (text of stderr), `progress`, `attempt` (its end) and `end`."""

    media_type: ClassVar[str] = "text/event-stream"


class MetricsTextModel(RootModel[str]):
    """Samples in the Prometheus text format."""

    media_type: ClassVar[str] = "text/plain"


class DocsPageModel(RootModel[str]):
    """A page that shows this document and can call the routes."""

    media_type: ClassVar[str] = "text/html"


class UiGatewayModel(ResponseModel):
    """The gateway that the dashboard shows."""

    name: str
    version: str
    timezone: str


class UiSessionModel(ResponseModel):
    """The caller, what it may do, and the end of its session."""

    name: str
    scopes: list[str]
    expires_at: Timestamp | None
    """Null if the request is authenticated by a token."""
    gateway: UiGatewayModel


class UiCodeModel(ResponseModel):
    """The code is valid for a minute and opens one session."""

    code: str
    url: str
    """The dashboard's address with the code."""


class UiSessionClosedModel(ResponseModel):
    """The session has ended."""

    closed: bool


class UiSessionsClosedModel(ResponseModel):
    """The sessions of all users were ended."""

    closed: int


class AuditEntryModel(ResponseModel):
    """An action of an operator, or a failed login."""

    id: int
    created_at: Timestamp
    actor: str
    """`token:NAME`, `user:NAME` on this machine, `session:local`, `signal` or `anonymous`."""
    source: str
    """The address, `local socket`, `command line` or `signal`."""
    action: str
    """A noun and a verb: `token.create`."""
    target: str | None
    """What it acted on."""
    details: dict[str, Any] | None
    """The arguments."""


class AuditPageModel(ResponseModel):
    """Entries of the audit log, newest first."""

    entries: list[AuditEntryModel]
    cursor: int | None
    """For the next page; null on the last one."""
