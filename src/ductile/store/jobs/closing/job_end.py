"""What follows from the end of one job: its schedule, its breaker, the hooks of a root job."""

from __future__ import annotations

from collections.abc import Sequence

from ductile.clock import to_text
from ductile.core.pipelines.hooks import RootEnd
from ductile.core.pipelines.intents import Intent
from ductile.core.schedules.breaker import Result
from ductile.model import Job, SubmittedBy
from ductile.store import breakers
from ductile.store.jobs.closing.scope_end import parse_result
from ductile.store.jobs.closing.work import Closing, JobEnd, ScopeCheck, Spawn, Work
from ductile.store.jobs.spawn import SpawnPoint


def follow_job_end(closing: Closing, end: JobEnd) -> list[Work]:
    job = end.job
    work: list[Work] = []
    if job.schedule_id is not None:
        _update_schedule(closing, end, job.schedule_id)
    if job.plugin in closing.tx_config.notify and _is_root(job):
        work.append(Spawn(_route_hooks(closing, end), SpawnPoint()))
    if job.scope_id is not None:
        work.append(ScopeCheck(job.scope_id))
    return work


def _update_schedule(closing: Closing, end: JobEnd, schedule_id: str) -> None:
    job = end.job
    result = Result.of(end.status, cancelled=end.cancelled)
    if result is Result.SUCCESS:
        at = to_text(closing.now)
        closing.tx.run("entry_succeeded", plugin=job.plugin, schedule_id=schedule_id, now=at)
    breakers.record_result(
        closing.tx,
        plugin=job.plugin,
        command=job.command,
        job_id=job.id,
        result=result,
        policy=closing.tx_config.breaker(job.plugin),
        now=closing.now,
    )


def _route_hooks(closing: Closing, end: JobEnd) -> Sequence[Intent]:
    job = end.job
    log = closing.tx.one("result_of", id=f"{job.id}-{job.attempt}")
    root = RootEnd(
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        status=end.status,
        submitted_by=job.submitted_by,
        attempt=job.attempt,
        error=end.error,
        duration_ms=round(end.duration * 1000, 3),
        timed_out=end.timed_out,
        result=parse_result(log[0]) if log else None,
    )
    event_ids = [closing.ids.next() for _ in range(3)]
    return closing.tx_config.router.hooks(root, now=closing.now, event_ids=event_ids).intents


def _is_root(job: Job) -> bool:
    """A join after a split that began its instance has no parent, but is not a root."""
    is_join = job.scope_id is not None and job.submitted_by == SubmittedBy.ROUTE
    return job.parent_job_id is None and not is_join
