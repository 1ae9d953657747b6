"""Requests to cancel a job of another node: notices, which every node reads."""

from __future__ import annotations

from datetime import datetime

import orjson

from ductile._fast_dataclass import dataclass
from ductile.model import Cancellation, Job, Notice
from ductile.store import notices
from ductile.store.engines.api import StoredNotice, Tx

REQUESTED = "job.cancel_requested"
_REASONS = {
    why.value: why
    for why in (Cancellation.OPERATOR, Cancellation.SUPERSEDED, Cancellation.DISPLACED)
}


@dataclass(frozen=True, slots=True)
class CancelRequest:
    job_id: str
    owner: str
    """The boot that ran the job when the request was made."""
    why: Cancellation


def request_cancel(tx: Tx, job: Job, why: Cancellation, now: datetime) -> None:
    """Ask the node that runs `job` to end it."""
    fields = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "owner": job.owner,
        "reason": why.value,
    }
    notices.post(tx, Notice("jobs", REQUESTED, fields), now, job_id=job.id, plugin=job.plugin)


def parse_cancel_request(notice: StoredNotice) -> CancelRequest | None:
    """The request in a notice; None if the notice names no job, owner or known reason."""
    fields = orjson.loads(notice.payload)
    why, owner = _REASONS.get(fields.get("reason")), fields.get("owner")
    if why is None or notice.job_id is None or not isinstance(owner, str):
        return None
    return CancelRequest(notice.job_id, owner, why)
