"""Hooks: the signals and payload that the end of a root job or of a run sends to pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.model import JobStatus, Json, RunStatus

COMPLETED, FAILED, TIMED_OUT = HOOKS = ("job.completed", "job.failed", "job.timed_out")
RUN_FAILED, RUN_SUCCEEDED, RUN_ENDED = "run.failed", "run.succeeded", "run.ended"
RUN_HOOKS = MappingProxyType(
    {"on_failure": RUN_FAILED, "on_success": RUN_SUCCEEDED, "always": RUN_ENDED}
)
"""The hook of each list of steps that a pipeline may have for the end of its runs."""


@dataclass(frozen=True, slots=True)
class RootEnd:
    """The end of a root job whose plugin has `notify_on_complete`."""

    job_id: str
    plugin: str
    command: str
    status: JobStatus
    submitted_by: str
    attempt: int
    error: str | None
    duration_ms: float
    timed_out: bool = False
    """Whether the last attempt timed out."""
    result: Json = None


def hook_signals(end: RootEnd) -> tuple[str, ...]:
    """The hooks that fire; none for a job that was skipped."""
    if end.status is JobStatus.SKIPPED:
        return ()
    failed = (FAILED,) if end.status in ENDED_BADLY else ()
    timed_out = (TIMED_OUT,) if end.timed_out else ()
    return (COMPLETED, *failed, *timed_out)


def hook_payload(end: RootEnd) -> dict[str, Json]:
    """The payload of a hook; `text` repeats `message` for plugins that post it."""
    verb = "timed out" if end.timed_out else "failed" if end.status in ENDED_BADLY else "succeeded"
    message = f"Job {verb} [{end.plugin}]" + (f": {end.error}" if end.error else "")
    payload = {
        "job_id": end.job_id,
        "plugin": end.plugin,
        "command": end.command,
        "status": end.status.value,
        "attempt": end.attempt,
        "error": end.error,
        "message": message,
        "text": message,
        "duration_ms": end.duration_ms,
    }
    return payload if end.result is None else {**payload, "result": end.result}


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a pipeline run that has failed or succeeded."""

    instance_id: str
    pipeline: str
    status: RunStatus
    first_hop: int
    """The number of hops from the root of the chain to the run."""
    last_job_id: str | None
    """The job that failed, or else the last one; None if the run had no job."""
    payload: Json
    """What entered the run."""
    origin: Mapping[str, Json] | None = None
    """The origin of the run's chain, if its context contains one."""
    failed_job_id: str | None = None
    failed_step: str | None = None
    error: str | None = None


def run_signals(end: RunEnd) -> tuple[str, str]:
    """The hooks that fire."""
    return (RUN_FAILED if end.status is RunStatus.FAILED else RUN_SUCCEEDED), RUN_ENDED


def run_payload(end: RunEnd) -> dict[str, Json]:
    """The payload of a run's hook; `text` repeats `message` for plugins that post it."""
    step = f" at step {end.failed_step}" if end.failed_step else ""
    message = f"Pipeline {end.pipeline} {end.status}{step}" + (
        f": {end.error}" if end.error else ""
    )
    return {
        "pipeline": end.pipeline,
        "instance_id": end.instance_id,
        "status": end.status.value,
        "failed_step": end.failed_step,
        "failed_job_id": end.failed_job_id,
        "error": end.error,
        "message": message,
        "text": message,
        "payload": end.payload,
    }
