"""The end of a wait, and the events that end waits."""

from __future__ import annotations

from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.core.waits.end import settle_wait
from ductile.model import Event, JobStatus
from ductile.store.engines.queries import NEVER
from ductile.store.jobs import read, spawn
from ductile.store.jobs.closing.scope_end import load_context
from ductile.store.jobs.closing.work import Closing, JobEnd, Spawn, Work
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.waits import awaited_events, parked_jobs
from ductile.store.waits.awaited_events import AwaitedEvent
from ductile.store.waits.wait_rows import WaitRow


def end_wait(closing: Closing, row: WaitRow, end: WaitEnd) -> list[Work]:
    """Write the end of a wait; returns what follows, nothing if it has ended before."""
    tx, job = closing.tx, read.load_job(closing.tx, row.job_id)
    if job is None or job.attempt != row.attempt or job.status is not JobStatus.QUEUED:
        return []
    context = load_context(tx, job.entered_context_id)
    router = closing.tx_config.router
    settled = settle_wait(job, row.open_wait, end, context, router, closing.ids)
    if not parked_jobs.end_job(tx, row, settled, end):
        return []
    context_id = spawn.insert_own_context(tx, job, settled.context, closing.now)
    spawn.post_unrouted(tx, job, settled.unrouted, closing.now)
    point = SpawnPoint(job.scope_id, context_id)
    ended = JobEnd(job, settled.status, settled.error, settled.duration)
    return [Spawn(settled.intents, point), ended]


def match_waits(closing: Closing, event: Event) -> list[Work]:
    """End the waits that this event matches; a loop continues where there are many."""
    work, after = _match_batch(closing, event)
    if after is not None:
        awaited_events.store_event(closing.tx, closing.ids.next(), event, after, closing.now)
    return work


def continue_event(closing: Closing, item: AwaitedEvent) -> list[Work]:
    work, after = _match_batch(closing, item.event, item.since, item.after)
    awaited_events.advance_event(closing.tx, item.id, after)
    return work


def _match_batch(
    closing: Closing, event: Event, since: str = NEVER, after: str = ""
) -> tuple[list[Work], str | None]:
    rows, last = awaited_events.match_event(closing.tx, event, since, after)
    work: list[Work] = []
    for row in rows:
        end = WaitEnd(WaitStatus.MATCHED, closing.now, event=event)
        if closing.is_left_to_others(row.pipeline):
            parked_jobs.hand_over(closing.tx, row, end)
        else:
            work += end_wait(closing, row, end)
    return work, last
