"""Responses about jobs."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from ductile.http.models.responses.fields import OMITTED, JobState, ResponseModel, Timestamp
from ductile.model import SubmittedBy


class JobQueuedModel(ResponseModel):
    """The job is durably queued."""

    job_id: str
    status: str
    plugin: str
    command: str
    deduplicated: bool
    """Whether the job existed already; then `job_id` is its id."""


class JobPlanModel(ResponseModel):
    """With `dry_run`: whether a job would be queued."""

    plugin: str
    command: str
    deduplicated: bool
    job_id: str | None
    """The existing job with the same key."""
    dry_run: bool


class ProgressModel(ResponseModel):
    """What a running job reports by a line `::progress 40 copying` of its stderr."""

    percent: float
    message: str
    seconds_left: float | None
    """An estimate from the time that was taken so far."""


class JobSummaryModel(ResponseModel):
    """A job without its payload and attempts."""

    job_id: str
    plugin: str
    command: str
    status: JobState
    attempt: int
    """The attempt that runs, or runs next."""
    max_attempts: int
    submitted_by: SubmittedBy
    submitter: str | None
    """`token:NAME` or `user:NAME`; null for jobs that no request has created."""
    dedupe_key: str | None
    dedupe_ttl: float | None
    created_at: Timestamp
    started_at: Timestamp | None
    completed_at: Timestamp | None
    next_retry_at: Timestamp | None
    """The job waits until this time."""
    last_error: str | None
    cancelled: bool
    """It is dead because an operator has ended it, or a newer job or run."""
    parent_job_id: str | None
    """The job whose event created this one."""
    source_event_id: str | None
    owner: str | None
    """The boot id of the gateway that runs it."""
    enqueued_snapshot_id: str | None
    started_snapshot_id: str | None
    schedule_id: str | None
    slot: str | None
    """The occurrence of its schedule."""
    event_context_id: str | None
    entered_context_id: str | None
    hops: int
    pipeline: str
    """The pipeline that it is a step of; empty without one."""
    step_path: str
    branch: str
    scope_id: str | None
    join_of: str | None
    replay_of: str | None
    acknowledged_at: Timestamp | None
    """When an operator has acknowledged its failure; a retry clears it."""
    acknowledged_by: str | None
    waits_for: str | None
    """Why it does not run yet."""
    progress: ProgressModel = OMITTED


class JobPageModel(ResponseModel):
    """Jobs, newest first."""

    jobs: list[JobSummaryModel]
    cursor: int | None
    """For the next page; null on the last one."""


class QueueModel(ResponseModel):
    """Running and queued jobs in the order of the queue."""

    queue_depth: int
    running: int
    jobs: list[JobSummaryModel]


class JobIdsModel(ResponseModel):
    """Job ids with the prefix."""

    job_ids: list[str]


class AttemptModel(ResponseModel):
    """One attempt of a job."""

    seq: int
    id: str
    """The job's id, a hyphen and the number of the attempt."""
    job_id: str | None
    plugin: str
    command: str
    status: JobState
    attempt: int
    """0 if the job ended without having run."""
    submitted_by: str
    result: Any
    """The whole response; in lists null without `include_result`."""
    last_error: str | None
    stdout: str | None
    """What the plugin printed instead of a response."""
    stderr: str | None
    logs: Any
    """The plugin's log lines, each with a level and a message."""
    created_at: str
    started_at: str | None
    completed_at: str
    duration_ms: float | None
    parent_job_id: str | None
    source_event_id: str | None
    boot: str | None
    """The boot id of the gateway that ran it."""
    node: str | None
    """The name of the node that ran it."""


class AttemptPageModel(ResponseModel):
    """Attempts, newest first."""

    logs: list[AttemptModel]
    cursor: int | None
    """For the next page; null on the last one."""


class TransitionModel(ResponseModel):
    """A change of a job's state."""

    from_status: str | None
    to_status: JobState
    attempt: int
    reason: str | None
    created_at: Timestamp


class StepInputModel(ResponseModel):
    """What the `with` of a step sets in the payload, by the configuration in force."""

    values: Any
    fails: str | None
    exact: bool
    """Whether the job started under this configuration."""


class JobModel(ResponseModel):
    """A job with its attempts and changes of state.

    A job that is past its retention is known from the log alone, which is `pruned`: it has the
    keys of its last attempt.
    """

    job_id: str
    seq: int
    plugin: str
    command: str
    payload: Any = OMITTED
    status: JobState
    attempt: int
    """The attempt that runs, or runs next."""
    max_attempts: int = OMITTED
    submitted_by: str
    submitter: str | None = OMITTED
    """`token:NAME` or `user:NAME`; null for jobs that no request has created."""
    trace_id: str = OMITTED
    """The trace that it belongs to, if tracing is on."""
    dedupe_key: str | None = OMITTED
    dedupe_ttl: float | None = OMITTED
    created_at: str
    started_at: str | None
    completed_at: str | None
    next_retry_at: str | None = OMITTED
    last_error: str | None
    cancelled: bool
    """It is dead because an operator has ended it, or a newer job or run."""
    stderr: str | None = OMITTED
    duration_ms: float | None = OMITTED
    parent_job_id: str | None
    source_event_id: str | None
    owner: str | None = OMITTED
    """The boot id of the gateway that runs it."""
    boot: str | None = OMITTED
    """Of a pruned job: the boot id of the gateway that ran it."""
    node: str | None
    """The name of the node that runs it, or that ran a pruned job."""
    enqueued_snapshot_id: str | None = OMITTED
    started_snapshot_id: str | None = OMITTED
    schedule_id: str | None = OMITTED
    slot: str | None = OMITTED
    event_context_id: str | None = OMITTED
    entered_context_id: str | None = OMITTED
    hops: int = OMITTED
    pipeline: str = OMITTED
    step_path: str = OMITTED
    branch: str = OMITTED
    scope_id: str | None = OMITTED
    join_of: str | None = OMITTED
    replay_of: str | None = OMITTED
    acknowledged_at: str | None = OMITTED
    """When an operator has acknowledged its failure; a retry clears it."""
    acknowledged_by: str | None = OMITTED
    duplicates_dropped: int = OMITTED
    """The number of jobs that were not created because this one has their dedupe key."""
    with_: StepInputModel | None = Field(OMITTED, alias="with")
    instance_id: str | None = OMITTED
    """The pipeline run that it is a job of."""
    instance_status: str | None = OMITTED
    """The state of that run, which may be `open` when this job has ended."""
    result: Any
    """The whole response of the last attempt."""
    attempts: list[AttemptModel]
    """The last attempts, as many as have room."""
    attempts_left_out: int = OMITTED
    """The number of earlier attempts; see /job-logs."""
    transitions: list[TransitionModel]
    """The last thousand."""
    transitions_left_out: int = OMITTED
    waits_for: str = OMITTED
    """Why it does not run yet."""
    progress: ProgressModel = OMITTED
    pruned: bool = OMITTED


class NodeAttemptModel(ResponseModel):
    """One attempt of a job in a tree."""

    attempt: int
    status: JobState
    started_at: str | None
    completed_at: str
    duration_ms: float | None
    last_error: str | None


class NodeModel(ResponseModel):
    """One job of a tree."""

    job_id: str
    plugin: str
    command: str
    status: JobState
    pipeline: str | None = OMITTED
    step: str | None = OMITTED
    branch: str | None = OMITTED
    join_of: str | None = OMITTED
    replay_of: str | None = OMITTED
    parent_job_id: str | None
    source_event_id: str | None
    submitted_by: str
    hops: int = OMITTED
    attempt: int
    created_at: str
    started_at: str | None
    completed_at: str | None
    duration_ms: float | None
    last_error: str | None
    attempts: list[NodeAttemptModel]
    result: Any
    baggage_added: dict[str, Any] = OMITTED
    depth: int
    left_out: list[str] = OMITTED
    """Keys that the response has no room for; ask for that job."""
    more: bool = OMITTED
    """On the first job: there may be more jobs than these."""
    pruned: bool = OMITTED
    children: list[NodeModel] = OMITTED
    children_left_out: int = OMITTED
    """The number of children too deep for a tree; ask with `flat=true`."""


class JobTreeModel(ResponseModel):
    """The jobs of one graph, as a tree or as a list."""

    tree: NodeModel = OMITTED
    jobs: list[NodeModel] = OMITTED


class JobReasonsModel(ResponseModel):
    """Why a job ran, waits, failed or did not run."""

    job_id: str
    status: str
    why: list[str]
    run: str | None
    """The command that repairs it; null where nothing is to be repaired."""


class JobCancellationModel(ResponseModel):
    """The job ends; with `dry_run`, it would."""

    job_id: str
    was: JobState
    cancelled: bool = OMITTED
    dry_run: bool = OMITTED


class JobRetryModel(ResponseModel):
    """The job is queued again; with `dry_run`, it would be."""

    job_id: str
    status: JobState
    attempt: int
    max_attempts: int
    dry_run: bool = OMITTED


class JobAcknowledgementModel(ResponseModel):
    """The failure of the job no longer needs an operator; with `dry_run`, it would not."""

    job_id: str
    status: JobState
    acknowledged: bool = OMITTED
    dry_run: bool = OMITTED


class FailureModel(ResponseModel):
    """The unresolved jobs of a command that have ended in the same state."""

    status: JobState
    plugin: str
    command: str
    jobs: int
    """At most 1,000 are counted."""
    job_id: str
    """The newest one; what follows is its own."""
    created_at: Timestamp
    completed_at: Timestamp | None
    last_error: str | None
    pipeline: str
    step_path: str


class FailuresModel(ResponseModel):
    """Failed and dead jobs that may need an operator, by command, the newest first."""

    failures: list[FailureModel]
    more: bool
    """Whether other commands fail as well, beyond the first hundred."""


class JobReplayModel(ResponseModel):
    """A new job is queued; with `dry_run`, it would be."""

    replay_of: str
    job_id: str = OMITTED
    status: Literal["queued"] = OMITTED
    dry_run: bool = OMITTED


class BulkRefusalModel(ResponseModel):
    """A job that the action was refused for."""

    job_id: str
    error: str
    code: str


class BulkResultModel(ResponseModel):
    """The jobs of a bulk action."""

    jobs: list[str]
    """The jobs that the action was applied to."""
    count: int
    refused: list[BulkRefusalModel]
    more: bool
    """Whether there may be more jobs than the limit allowed."""
    dry_run: bool = OMITTED
