"""Responses that show what a change would do with past jobs."""

from __future__ import annotations

from typing import Any, Literal

from ductile.http.models.responses.fields import OMITTED, ResponseModel

Verdict = Literal["identical", "ignored", "different", "failed", "not_compared"]


class ComparedSandboxModel(ResponseModel):
    """What the plugin was kept from."""

    network: str | list[int]
    """`none`, `all`, or the ports that it could connect to."""
    not_held: dict[str, str]
    """What the kernel cannot enforce, and why."""


class DifferenceModel(ResponseModel):
    """A part of the outcome that differs; a side that does not have it is left out."""

    path: str
    """Such as `events.0.payload.id`."""
    before: Any = OMITTED
    after: Any = OMITTED


class ComparedJobModel(ResponseModel):
    """A past job, repeated."""

    job_id: str
    verdict: Verdict
    """`failed`: it fails where the recorded attempt succeeded."""
    reason: str = OMITTED
    """Why it was not compared."""
    command: str = OMITTED
    recorded_duration_ms: float | None = OMITTED
    duration_ms: float = OMITTED
    differences: list[DifferenceModel] = OMITTED
    differences_left_out: int = OMITTED
    ignored: list[str] = OMITTED
    """The ignored paths that differ."""
    notes: list[str] = OMITTED
    """What of the request is not recorded, so that the attempt may have had another one."""


class DifferingFieldModel(ResponseModel):
    """A path that differs, and in how many jobs."""

    path: str
    """With `*` for indexes."""
    jobs: int


class ComparisonSummaryModel(ResponseModel):
    """Of the jobs of this page."""

    identical: int
    ignored: int
    """Different in ignored fields only."""
    different: int
    failed: int
    not_compared: int
    inexact: int
    """Repeated without the whole of what they received."""
    fields: list[DifferingFieldModel]
    duration_ms: float | None
    """The median; that of the recorded attempts may be of warm starts."""
    recorded_duration_ms: float | None


class PluginComparisonModel(ResponseModel):
    """Past jobs of a plugin, repeated with its files."""

    plugin: str
    directory: str
    version: str
    fingerprint: str
    is_loaded: bool
    """Whether the gateway has loaded these files."""
    sandbox: ComparedSandboxModel
    jobs: list[ComparedJobModel]
    summary: ComparisonSummaryModel
    cursor: int | None


class BundledFilesModel(ResponseModel):
    """The files that a job began with."""

    used: bool
    """Whether the job has a workspace."""
    files: list[dict[str, Any]]
    """Each with `path`, `text` and `executable`."""
    left_out: list[dict[str, str]]
    """Each with `path` and `reason`: not text, too large, a link."""
    more_left_out: int


class JobBundleModel(ResponseModel):
    """A job that has ended, without known secrets."""

    format: str
    version: int
    made_at: str
    ductile: str
    job: dict[str, Any]
    request: dict[str, Any]
    """As the plugin received it, with the plugin's config."""
    outcome: dict[str, Any]
    """Of the last attempt: `status`, `error`, `response`, `duration_ms`."""
    attempts: list[dict[str, Any]]
    plugin: dict[str, Any]
    """The loaded plugin: its version, its fingerprint."""
    environment: list[str]
    """The names of the plugin's variables."""
    configuration: dict[str, Any]
    workspace: BundledFilesModel
    notes: list[str]
    """What may differ from what the job received."""
    removed: int
    """The number of values that were removed."""


class ComparedStepModel(ResponseModel):
    """A step of a run that differs."""

    step: str
    branch: str | None
    change: Literal["would run", "would not run", "changed"]
    plugin: str
    differences: list[DifferenceModel]
    """Of `plugin`, the `input` that the step gets, its `if`, the reason why it `fails`."""


class ComparedRunModel(ResponseModel):
    """A past run, replayed without running plugins."""

    run_id: str
    status: str
    """As recorded."""
    verdict: Literal["identical", "different", "not_compared"]
    reason: str = OMITTED
    """Why it was not compared."""
    refusal: str | None = OMITTED
    """Why the run would not start."""
    steps: list[ComparedStepModel] = OMITTED
    children_added: list[str] = OMITTED
    """What would start outside of the pipeline: other pipelines, and plugins by routes."""
    children_removed: list[str] = OMITTED
    notes: list[str] = OMITTED


class RunComparisonModel(ResponseModel):
    """Past runs of a pipeline, and what the files would do with their events."""

    pipeline: str
    config: str
    """The file that was compared with the running configuration."""
    runs: list[ComparedRunModel]
    cursor: str | None
