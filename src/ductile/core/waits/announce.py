"""Events about approvals: `approval.waiting`, and `approval.` with the status at its end.

Routes and pipelines may start plugins with them that notify people.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from ductile.clock import to_text
from ductile.core.pipelines.baggage import deeper
from ductile.core.pipelines.intents import Intent, Routing
from ductile.core.pipelines.lineage import Done
from ductile.core.pipelines.router import Router
from ductile.core.waits.begin import NewWait
from ductile.core.waits.decision import OpenWait, WaitEnd, WaitStatus
from ductile.core.waits.parse import WaitKind
from ductile.model import Event, Job, Json

WAITING_EVENT = "approval.waiting"
APPROVAL_EVENTS = frozenset(
    {
        WAITING_EVENT,
        *(
            f"approval.{status}"
            for status in (WaitStatus.APPROVED, WaitStatus.REJECTED, WaitStatus.EXPIRED)
        ),
    }
)


def announce_begin(
    job: Job,
    wait: NewWait,
    context: Mapping[str, Json],
    router: Router,
    now: datetime,
    event_id: str,
    *,
    link: str | None,
) -> Routing:
    """What `approval.waiting` starts; `link` leads to the page that decides."""
    if wait.kind is not WaitKind.APPROVAL:
        return Routing()
    decide = f" {link}" if link else f" (ductile approval approve {wait.id})"
    message = f"{wait.title}{decide}"
    payload = {
        "approval_id": wait.id,
        "job_id": job.id,
        "pipeline": job.pipeline,
        "step": job.step_path,
        "title": wait.title,
        "description": wait.description,
        "due_at": None if wait.due_at is None else to_text(wait.due_at),
        "link": link,
        "message": message,
        "text": message,
    }
    event = Event(WAITING_EVENT, payload, None, job.plugin, now, event_id)
    return router.announce(done_by(job, deeper(context, job.hops)), event)


def announce_end(
    done: Done, job: Job, wait: OpenWait, end: WaitEnd, router: Router, event_id: str
) -> tuple[Intent, ...]:
    """What the event about the end of an approval starts."""
    if wait.kind != WaitKind.APPROVAL:
        return ()
    payload = describe_end(job, wait, end)
    event = Event(f"approval.{end.status}", payload, None, job.plugin, end.at, event_id)
    return router.announce(done, event).intents


def describe_end(job: Job, wait: OpenWait, end: WaitEnd) -> dict[str, Json]:
    """The payload of the event and of the notice about the end of an approval."""
    by = f" by {end.by}" if end.by else ""
    comment = f": {end.comment}" if end.comment else ""
    message = f"{wait.title}: {end.status}{by}{comment}"
    return {
        "approval_id": wait.id,
        "job_id": job.id,
        "pipeline": job.pipeline,
        "step": job.step_path,
        "title": wait.title,
        "status": end.status.value,
        "by": end.by,
        "comment": end.comment,
        "at": to_text(end.at),
        "message": message,
        "text": message,
    }


def done_by(job: Job, accumulated: Mapping[str, Json]) -> Done:
    """The job as routing sees it; `accumulated` is its own context."""
    return Done(
        job_id=job.id,
        plugin=job.plugin,
        submitted_by=job.submitted_by,
        hops=job.hops,
        context=accumulated,
        pipeline=job.pipeline,
        step_path=job.step_path,
        branch=job.branch,
    )
