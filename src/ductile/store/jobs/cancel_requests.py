"""Requests to cancel a job that another node may run."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.model import Cancellation, Job
from ductile.store import nodes, notices
from ductile.store.engines.api import Tx
from ductile.store.nodes import NodeRequest, RequestKind

REQUESTED = "job.cancel_requested"
"""The notice, which nodes of versions without `node_requests` read as the request."""


def request_cancel(tx: Tx, job: Job, why: Cancellation, now: datetime) -> None:
    """Ask the node that runs `job` to end it."""
    notices.post_job(
        tx, job, REQUESTED, now, attempt=job.attempt, owner=job.owner, reason=why.value
    )
    if job.owner is not None:
        id = f"{job.id} {job.attempt} {job.owner}"
        request = NodeRequest(id, job.owner, RequestKind.CANCEL, job.id, why.value)
        nodes.add_request(tx, request, to_text(now))
