"""Hooks: the signals and payload that the end of a root job sends to hook pipelines."""

from __future__ import annotations

from ductile._fast_dataclass import dataclass
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.model import JobStatus, Json

COMPLETED, FAILED, TIMED_OUT = HOOKS = ("job.completed", "job.failed", "job.timed_out")


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
