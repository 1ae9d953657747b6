"""Responses about the configuration: its view, plan, snapshots and changes."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ductile.http.models.responses.fields import OMITTED, ResponseModel


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
    """Earlier than 7 days if the schedules that differ fire very often in them."""
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
    routes: list[NamedChangeModel]
    """Routes whose priority or debounce differs."""
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
    """What the files would change if they were applied."""

    id: str | None
    """Names exactly this change, to apply it; null for another directory."""
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
    jobs_left_out: bool
    """More than 1000 groups of jobs are queued; the others were not compared."""
    warnings: list[str]
    refused: dict[str, str]
    changes: dict[str, ReloadChangesModel]
    watched: dict[str, Any]
    """What the plan changes: `plugins`, `pipelines`, `schedules`, or `everything`."""


class FileChangeModel(ResponseModel):
    """What happens to a file."""

    file: str
    change: Literal["replaced", "created", "moved away"]
    moved_to: str | None


class ConfigAppliedModel(ResponseModel):
    """The planned configuration is in force; with `dry_run`, its plan."""

    status: Literal["ok"] = OMITTED
    plan_id: str = OMITTED
    snapshot_id: str | None = OMITTED
    previous_snapshot_id: str | None = OMITTED
    """The one to return to."""
    warnings: list[str] = OMITTED
    plugins_refused: dict[str, str] = OMITTED
    files: list[FileChangeModel]
    """Files that were written, or would be."""
    returns_to: str = OMITTED
    """The snapshot whose files are restored."""
    differs: list[SettingPlanModel] = OMITTED
    """Settings that are not as they were then, because their values come from elsewhere."""
    dry_run: bool = OMITTED
    plan: ConfigPlanModel = OMITTED


class OutcomeRateModel(ResponseModel):
    """Ended attempts, and how many of them failed."""

    attempts: int
    failed: int
    rate: float | None


class WatchedSubjectModel(ResponseModel):
    """A plugin, pipeline or schedule that a plan has changed."""

    kind: Literal["plugin", "pipeline", "schedule", "everything"]
    name: str
    before: OutcomeRateModel
    after: OutcomeRateModel
    risen: bool


class ConfigWatchModel(ResponseModel):
    """The error rates of what the last plan has changed, and those of the same time before."""

    plan: str
    applied_at: str
    until: str
    seconds_left: float
    in_force: bool
    """False if another configuration was applied since."""
    previous_snapshot_id: str | None
    subjects: list[WatchedSubjectModel]
    risen: bool


class SnapshotModel(ResponseModel):
    """A configuration that was in force."""

    id: str
    config_hash: str
    created_at: str
    """When it was applied first."""
    adopted_at: str
    """When it was applied last."""
    in_force: bool
    restorable: bool
    """Whether the node that answers keeps a copy of its files."""


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
