from __future__ import annotations

import pytest

from ductile.core.pipelines.hooks import RootEnd, hook_payload, hook_signals
from ductile.model import JobStatus


def end(status, **more) -> RootEnd:
    given = {"submitted_by": "scheduler", "attempt": 2, "error": None, "duration_ms": 12.5, **more}
    return RootEnd("j1", "git-sync", "poll", status, **given)


@pytest.mark.parametrize(
    ("status", "timed_out", "signals"),
    [
        (JobStatus.SUCCEEDED, False, ("job.completed",)),
        (JobStatus.FAILED, False, ("job.completed", "job.failed")),
        (JobStatus.DEAD, False, ("job.completed", "job.failed")),
        (JobStatus.DEAD, True, ("job.completed", "job.failed", "job.timed_out")),
        (JobStatus.SKIPPED, False, ()),
    ],
)
def test_each_end_fires_its_hooks(status, timed_out, signals):
    assert hook_signals(end(status, timed_out=timed_out)) == signals


def test_payload_of_a_hook_has_a_text_too():
    assert hook_payload(end(JobStatus.DEAD, error="connection reset")) == {
        "job_id": "j1",
        "plugin": "git-sync",
        "command": "poll",
        "status": "dead",
        "attempt": 2,
        "error": "connection reset",
        "message": "Job failed [git-sync]: connection reset",
        "text": "Job failed [git-sync]: connection reset",
        "duration_ms": 12.5,
    }
    assert (
        hook_payload(end(JobStatus.DEAD, timed_out=True))["message"] == "Job timed out [git-sync]"
    )
    payload = hook_payload(end(JobStatus.SUCCEEDED, result="fine"))
    assert (payload["message"], payload["result"]) == ("Job succeeded [git-sync]", "fine")
