"""Asking for the end of a job that another node runs: a notice, which every node comes across."""

from __future__ import annotations

from datetime import datetime

import orjson

from ductile.model import Cancellation, Job, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import StoredNotice, Tx

REQUESTED = "job.cancel_requested"
_REASONS = {why.value: why for why in (Cancellation.OPERATOR, Cancellation.SUPERSEDED)}


@dataclass(frozen=True, slots=True)
class Request:
    job_id: str
    owner: str
    """The boot that ran it when it was asked."""
    why: Cancellation


def request(tx: Tx, job: Job, why: Cancellation, now: datetime) -> None:
    """Ask the node that runs `job` to end it; the stream brings it there."""
    told = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "owner": job.owner,
        "reason": why.value,
    }
    notices.post(tx, Notice("jobs", REQUESTED, told), now, job_id=job.id, plugin=job.plugin)


def requested(notice: StoredNotice) -> Request | None:
    """What such a notice asks for; None where it says nothing that can be done."""
    told = orjson.loads(notice.payload)
    why, owner = _REASONS.get(told.get("reason")), told.get("owner")
    if why is None or notice.job_id is None or not isinstance(owner, str):
        return None
    return Request(notice.job_id, owner, why)
