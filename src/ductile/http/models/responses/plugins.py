"""Responses about plugins: their state, their facts, their circuit breakers, their files."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict

from ductile.http.models.responses.fields import OMITTED, JobState, ResponseModel, Timestamp
from ductile.http.models.responses.pauses import PauseModel


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
    """What the kernel enforces: files, network, sockets, processes, signals, system calls."""
    not_held: dict[str, str]
    """What it cannot enforce, and why."""
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


class PluginFields(ResponseModel):
    """What every response about a plugin contains."""

    name: str
    state: Literal["ready", "unhealthy", "refused", "shadowed", "disabled", "available", "missing"]
    reason: str | None
    """Why it is not ready, its pause, or which of its circuit breakers are not closed."""
    paused: PauseModel | None
    version: str = OMITTED
    protocol: int = OMITTED
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


class PluginModel(PluginFields):
    """A plugin that was found or configured."""

    commands: dict[str, str]
    """The type of each command."""


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


class PluginDetailModel(PluginFields):
    """A plugin and its commands."""

    commands: list[CommandModel]


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


class BreakerModel(ResponseModel):
    """A circuit breaker."""

    plugin: str
    command: str
    state: Literal["closed", "open", "half_open"]
    failure_count: int
    opened_at: Timestamp | None
    last_failure_at: Timestamp | None
    last_job_id: str | None
    probe_job_id: str | None
    updated_at: Timestamp | None
    cause: str | None
    """The error of the newest job that counted, as long as the job is kept."""
    next_probe_at: Timestamp | None
    """When the schedules of an open breaker may fire again."""


class BreakerTransitionModel(ResponseModel):
    """A change of a breaker's state."""

    id: str
    plugin: str
    command: str
    from_state: str | None
    to_state: str
    failure_count: int
    reason: str
    job_id: str | None
    created_at: Timestamp


class BreakersModel(ResponseModel):
    """The breakers of a plugin."""

    plugin: str
    breakers: list[BreakerModel]
    transitions: list[BreakerTransitionModel]


class BreakerResetModel(ResponseModel):
    """The breakers are closed; with `dry_run`, they would be."""

    status: Literal["ok"]
    plugin: str
    closed: list[str]
    dry_run: bool = OMITTED
