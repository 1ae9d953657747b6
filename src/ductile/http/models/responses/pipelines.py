"""Responses about pipelines and schedules."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ductile.http.models.responses.fields import OMITTED, JobState, ResponseModel, Timestamp
from ductile.http.models.responses.jobs import NodeModel
from ductile.http.models.responses.pauses import PauseModel


class NewestRunModel(ResponseModel):
    """The newest run of a pipeline."""

    instance_id: str
    status: Literal["running", "succeeded", "failed", "skipped"]
    started_at: Timestamp
    ended_at: Timestamp | None


class PipelineFields(ResponseModel):
    """What every response about a pipeline contains."""

    name: str
    on: str | None
    """The event type that starts it."""
    on_hook: str | None
    from_plugin: str | None
    from_pipeline: str | None
    """The pipeline whose `on_failure`, `on_success` or `always` it is."""
    if_: str | None = Field(alias="if")
    execution_mode: str
    timeout: float | None
    workspace: Any
    max_depth: int | None
    paused: PauseModel | None


class PipelineSummaryModel(PipelineFields):
    """A pipeline."""

    steps: int
    """The number of steps."""
    last_run: NewestRunModel | None = OMITTED
    """Null if it never ran; left out unless the token has `jobs:ro`."""


class PipelinesModel(ResponseModel):
    """Every pipeline."""

    pipelines: list[PipelineSummaryModel]


class StepModel(ResponseModel):
    """A compiled step."""

    step: str
    kind: str
    plugin: str | None
    command: str | None
    if_: str | None = Field(alias="if")
    next: str | None
    otherwise: str | None
    branches: dict[str, Any]
    on_events: dict[str, list[str]]
    join_always: bool
    with_: bool = Field(alias="with")
    baggage: dict[str, str]
    source: str
    """File and line of the configuration."""


class PipelineModel(PipelineFields):
    """A pipeline with its compiled steps and two diagrams of them."""

    steps: list[StepModel]
    mermaid: str
    drawing: str


class PipelineStartedModel(ResponseModel):
    """The pipeline is started."""

    job_id: str | None
    instance_id: str
    status: Literal["queued", "running", "skipped"]
    pipeline: str
    deduplicated: bool
    reason: str = OMITTED
    """Why a limit of the pipeline has skipped the run."""
    timeout_exceeded: bool = OMITTED
    """Set if a synchronous pipeline continues without its caller."""


class PipelineOutcomeModel(ResponseModel):
    """The synchronous pipeline and every job that descends from it have ended."""

    job_id: str | None
    status: str
    """The run's own; the jobs of routes and other pipelines have theirs in `tree`."""
    duration_ms: float
    instance_id: str
    result: Any
    """The whole response of the last step."""
    tree: list[NodeModel]
    """Every job that descends from the call, in the order of creation."""
    reason: str | None = OMITTED


class PipelinePlanModel(ResponseModel):
    """With `dry_run`: what would run first."""

    dry_run: bool
    pipeline: str
    step: str | None
    event: str
    payload: Any
    if_: Any = Field(alias="if")
    context: Any
    max_depth: int | None
    first: list[dict[str, Any]]
    resolution: list[StepModel]
    deduplicated: bool
    job_id: str | None
    """The existing job with the same key."""


class RunJobModel(ResponseModel):
    """A job of a pipeline run."""

    job_id: str
    step: str
    plugin: str
    command: str
    status: JobState
    branch: str
    attempt: int
    max_attempts: int
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    next_retry_at: Timestamp | None
    last_error: str | None


class InstanceModel(ResponseModel):
    """A pipeline run and its jobs."""

    instance_id: str
    pipeline: str
    status: Literal["open", "succeeded", "failed", "skipped"]
    reason: str | None
    created_at: Timestamp
    ended_at: Timestamp | None
    jobs: list[RunJobModel]
    jobs_left_out: bool
    result: Any
    """The whole response of its last step."""
    tree_ended: bool
    """Whether every job that descends from the run has ended, including jobs of routes and other
    pipelines."""


class RunSummaryModel(ResponseModel):
    """A pipeline run in a list."""

    instance_id: str
    pipeline: str
    status: Literal["running", "succeeded", "failed", "skipped"]
    trigger: str | None
    """What submitted its first job; null if that was deduplicated."""
    parent_job_id: str | None
    """The job whose event started it."""
    root_job_id: str | None
    """Its first job."""
    started_at: Timestamp
    ended_at: Timestamp | None
    duration_ms: float | None
    queued_ms: float | None
    """How long its first job was queued; null if it has not started or was retried."""
    failed_step: str | None
    failed_job_id: str | None
    reason: str | None


class RunsModel(ResponseModel):
    """A page of pipeline runs, newest first."""

    runs: list[RunSummaryModel]
    cursor: str | None


class RunStepModel(ResponseModel):
    """A job of the run, a split, or a step that has no job."""

    step: str
    kind: str
    depends_on: list[str]
    status: str
    """The job's status; `waiting` or `not_run` without a job."""
    reason: str | None
    """Why it failed, waits or did not run."""
    job_id: str | None
    plugin: str | None
    command: str | None
    branch: str | None
    attempt: int | None
    max_attempts: int | None
    parent_job_id: str | None
    created_at: Timestamp | None
    started_at: Timestamp | None
    completed_at: Timestamp | None
    next_retry_at: Timestamp | None
    last_error: str | None
    payload: Any
    """Null if it is larger than 16 KiB; the job has it."""
    result: Any
    """The response of the last attempt; null if it is larger than 16 KiB."""
    log_tail: str | None
    """The end of the last attempt's stderr."""


class RunModel(RunSummaryModel):
    """A pipeline run and its steps."""

    steps: list[RunStepModel]
    steps_left_out: bool


class RunActionModel(ResponseModel):
    """The jobs of the run that were cancelled or queued again; with `dry_run`, would be."""

    instance_id: str
    job_ids: list[str]
    dry_run: bool = OMITTED


class ApprovalModel(ResponseModel):
    """A decision that a step of a pipeline waits for, or waited for."""

    id: str
    status: Literal["waiting", "approved", "rejected", "expired", "cancelled"]
    title: str
    description: str
    pipeline: str
    step: str
    instance_id: str | None
    """The pipeline run; null past its retention."""
    job_id: str
    created_at: Timestamp
    due_at: Timestamp | None
    """When it expires; null if it waits without an end."""
    on_timeout: Literal["fail", "continue", "skip"] | None
    ended_at: Timestamp | None
    ended_by: str | None
    """Who decided: `token:NAME`, `user:NAME`, `session:local` or `link`."""
    comment: str | None


class ApprovalsModel(ResponseModel):
    """A page of approvals, newest first."""

    approvals: list[ApprovalModel]
    cursor: str | None


class ApprovalActionModel(ResponseModel):
    """The approval that was decided; with `dry_run`, would be."""

    id: str
    status: Literal["approved", "rejected"]
    job_id: str
    job_status: str
    """The status of the step's job after the decision."""
    dry_run: bool = OMITTED
