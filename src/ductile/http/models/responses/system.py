"""Responses about the gateway: its health, its state and its backups."""

from __future__ import annotations

from typing import Any, Literal

from ductile.http.models.responses.fields import OMITTED, ResponseModel, Timestamp
from ductile.http.models.responses.jobs import FailureModel
from ductile.http.models.responses.pauses import PauseModel
from ductile.http.models.responses.plugins import PluginStatusModel


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


class RefusedWebhooksModel(ResponseModel):
    """Webhook requests of the last hour that this node refused for the same reason."""

    endpoint: str | None
    """The path of the endpoint; null for paths that no endpoint has."""
    reason: str
    requests: int
    last_at: Timestamp


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
    refused_webhooks: list[RefusedWebhooksModel]
    """Counted in memory since the start, the most frequent first."""
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
    failures: list[FailureModel]
    """Commands with failed and dead jobs that may need an operator."""
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
