"""Runs of pipelines with a limit: they begin, wait, end as skipped, or cancel an older one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ductile.clock import to_text
from ductile.model import Cancellation, JobStatus
from ductile.store.flow import run_limits
from ductile.store.jobs import cancel_requests, read, runs, scopes
from ductile.store.jobs.closing.queued_jobs import end_queued_row
from ductile.store.jobs.closing.work import Closing, JobEnd, OpenKey, Work
from ductile.store.jobs.scopes import ScopeRow

MOST_JOBS = 2000
"""How many jobs of a run are ended at once when a newer run replaces it."""


def take_turn(closing: Closing, run_id: str, *, must_wait: bool) -> list[Work]:
    found = closing.tx.one("limited_run", id=run_id)
    limit = None if found is None else closing.tx_config.run_limits.get(found[1])
    turn = run_limits.take_turn(closing.tx, run_id, limit, closing.now, must_wait=must_wait)
    work: list[Work] = []
    for skipped_id, reason in turn.skipped:
        work += _skip_run(closing, skipped_id, reason)
    for displaced_id in turn.displaced:
        work += cancel_displaced(closing, displaced_id)
    return work


def open_key(closing: Closing, pipeline: str, limit_key: str) -> list[Work]:
    limit = closing.tx_config.run_limits.get(pipeline)
    if limit is not None or not closing.is_left_to_others(pipeline):
        run_limits.open_key(closing.tx, pipeline, limit_key, limit)
    return []


def _skip_run(closing: Closing, run_id: str, reason: str) -> list[Work]:
    """End a run that never began, without the handlers of a run that has ended."""
    scope = scopes.lock_scope(closing.tx, run_id)
    if scope is None or scope.status != "open":
        return []
    found = runs.list_job_ids(closing.tx, run_id, (JobStatus.QUEUED,), MOST_JOBS)
    closing.tx.run("end_scopes_of_run", id=run_id, reason=reason, now=to_text(closing.now))
    work = end_scope(closing, scope, "skipped", reason)
    return [*_end_jobs(closing, found, JobStatus.SKIPPED, reason), *work]


def skip_instance(closing: Closing, scope_id: str, existing_job_id: str) -> list[Work]:
    scope = scopes.lock_scope(closing.tx, scope_id)
    assert scope is not None, "this transaction has just written it"
    return end_scope(closing, scope, "skipped", f"deduplicated: job {existing_job_id} replaces it")


def supersede(closing: Closing, job_id: str, newer_job_id: str) -> list[Work]:
    """Skip the job, and its run without the handlers of a run that has ended."""
    job = read.load_job(closing.tx, job_id)
    assert job is not None, "this transaction has just taken its place"
    reason = f"superseded by job {newer_job_id} (debounce)"
    end = end_queued_row(closing.tx, job, JobStatus.SKIPPED, reason, closing.now)
    if end is None:
        return []
    scope = None if job.scope_id is None else scopes.lock_scope(closing.tx, job.scope_id)
    if scope is None or scope.status != "open":
        return [end]
    return [end, *end_scope(closing, scope, "skipped", reason)]


def cancel_displaced(closing: Closing, run_id: str) -> list[Work]:
    """End the queued jobs of a run for which a newer run waits, and cancel the running ones."""
    newer = run_limits.find_displaced(closing.tx, run_id)
    if newer is None:
        return []
    for job_id in runs.list_job_ids(closing.tx, run_id, (JobStatus.RUNNING,), MOST_JOBS):
        job = read.load_job(closing.tx, job_id)
        if job is not None and closing.tx.run("displace_job", id=job.id, attempt=job.attempt):
            why = Cancellation.RUN_DISPLACED
            cancel_requests.request_cancel(closing.tx, job, why, closing.now)
    queued = runs.list_job_ids(closing.tx, run_id, (JobStatus.QUEUED,), MOST_JOBS)
    return list(_end_jobs(closing, queued, JobStatus.DEAD, run_limits.describe_newer(newer)))


def _end_jobs(
    closing: Closing, job_ids: Sequence[str], status: JobStatus, reason: str
) -> Iterator[JobEnd]:
    for job in filter(None, (read.load_job(closing.tx, job_id) for job_id in job_ids)):
        end = end_queued_row(closing.tx, job, status, reason, closing.now)
        if end is not None:
            yield end


def end_scope(
    closing: Closing, scope: ScopeRow, status: str, reason: str | None = None
) -> list[Work]:
    """End the scope; the next run of its key may begin."""
    scopes.end_scope(closing.tx, scope, status, closing.now, reason=reason)
    return [] if scope.limit_key is None else [OpenKey(scope.pipeline, scope.limit_key)]
