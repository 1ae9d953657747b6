"""The end of a wait: from a decision to the settlement that continues or ends its chain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ductile.clock import Ids, to_text
from ductile.core.jobs.plugin_protocol import EmittedEvent
from ductile.core.pipelines.baggage import deeper
from ductile.core.pipelines.router import Router
from ductile.core.pipelines.step_io import STEP_SUCCEEDED, entered_payload, outgoing
from ductile.core.waits.announce import announce_end, done_by
from ductile.core.waits.decision import OpenWait, WaitEnd, WaitStatus
from ductile.core.waits.parse import OnTimeout, WaitKind
from ductile.model import Event, Job, JobStatus, Json, Settlement

WAIT_EXPIRED = "ductile.wait.expired"
"""The event of a step that continues although its wait has expired; `on_events` may name it."""


def time_is_up(kind: str) -> WaitStatus:
    """What the end of its time means for a wait of this kind."""
    is_own_end = kind in (WaitKind.UNTIL, WaitKind.FOR)
    return WaitStatus.ELAPSED if is_own_end else WaitStatus.EXPIRED


def settle_wait(
    job: Job, wait: OpenWait, end: WaitEnd, context: Mapping[str, Json], router: Router, ids: Ids
) -> Settlement:
    """The settlement of a waiting job; `context` is what the job entered with."""
    status, error = _status_after(job, wait, end, router)
    accumulated = deeper(context, job.hops)
    done = done_by(job, accumulated)
    record: dict[str, Any] = {
        "result": orjson.dumps({"status": "ok", "result": _result(end)}).decode(),
        "duration": max((end.at - wait.since).total_seconds(), 0.0),
    }
    announced = announce_end(done, job, wait, end, router, ids.next())
    if status is not JobStatus.SUCCEEDED:
        return Settlement(
            job=job, path=(status,), at=end.at, error=error, intents=announced, **record
        )
    routing = router.route(done, _events(job, end, ids))
    own = orjson.dumps(accumulated).decode() if context else None
    return Settlement(
        job=job,
        path=(status,),
        at=end.at,
        context=own,
        intents=(*routing.intents, *announced),
        unrouted=routing.unrouted,
        **record,
    )


def _status_after(
    job: Job, wait: OpenWait, end: WaitEnd, router: Router
) -> tuple[JobStatus, str | None]:
    comment = f": {end.comment}" if end.comment else ""
    if end.status is WaitStatus.REJECTED:
        return JobStatus.FAILED, f"approval rejected by {end.by or 'unknown'}{comment}"
    if end.status is WaitStatus.EXPIRED and wait.on_timeout != OnTimeout.CONTINUE:
        what = "approval" if wait.kind == WaitKind.APPROVAL else f"event {wait.event_type}"
        reason = f"no {what} came within the timeout of the wait"
        skips = wait.on_timeout == OnTimeout.SKIP
        return (JobStatus.SKIPPED if skips else JobStatus.FAILED), reason
    lost = router.lost(job.pipeline, job.step_path, job.plugin, job.command)
    return (JobStatus.SUCCEEDED, None) if lost is None else (JobStatus.FAILED, lost)


def _events(job: Job, end: WaitEnd, ids: Ids) -> tuple[Event, ...]:
    """The event that continues the chain: the step's input, with the end of the wait."""
    entered = entered_payload(job.command, job.payload)
    kind = WAIT_EXPIRED if end.status is WaitStatus.EXPIRED else STEP_SUCCEEDED
    payload = dict(entered) if isinstance(entered, dict) else {"payload": entered}
    result = _result(end)
    if end.event is not None:
        result["event"] = {**result["event"], "payload": end.event.payload}
    return outgoing(
        (EmittedEvent(kind, {**payload, "result": result}, None),),
        source=job.plugin,
        in_pipeline=True,
        entered=entered,
        result=None,
        now=end.at,
        event_ids=[ids.next()],
    )


def _result(end: WaitEnd) -> dict[str, Json]:
    result: dict[str, Json] = {"wait": end.status.value, "at": to_text(end.at)}
    if end.by is not None:
        result["by"] = end.by
    if end.comment is not None:
        result["comment"] = end.comment
    if end.event is not None:
        # Without its payload, which is not redacted; the next step receives it.
        event = end.event
        result["event"] = {"type": event.type, "event_id": event.event_id, "source": event.source}
    return result
