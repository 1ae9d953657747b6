"""The end of a job, whoever ends it: settle, cancel, recovery, reload, a limit.

`ended` is the one way. In the same transaction it tells the schedule and the breaker, fires
the hooks of a root job, and closes scopes upwards: a scope with nothing queued, running or
open inside has ended; a split that ended well makes its join, once, or where that can follow
no more has failed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import orjson

from ductile.clock import Ids, to_text
from ductile.core.jobs.state_machine import edges
from ductile.core.pipelines.hooks import RootEnd
from ductile.core.pipelines.intents import Intent, JoinStep
from ductile.core.pipelines.join import EndedJob
from ductile.core.pipelines.lineage import SplitScope
from ductile.core.schedules.breaker import Result
from ductile.model import Job, JobStatus, Notice, SubmittedBy
from ductile.record import dataclass
from ductile.store import breakers, notices
from ductile.store.engines.api import Row, Tx
from ductile.store.jobs import enqueue, spawn
from ductile.store.jobs.spawn import Place, Spawned
from ductile.store.tx_config import TxConfig


@dataclass(frozen=True, slots=True)
class End:
    """A job that has come to its end."""

    job: Job
    status: JobStatus
    at: datetime
    error: str | None = None
    duration: float = 0.0
    cancelled: bool = False
    timed_out: bool = False


def end_queued(
    tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime, tx_config: TxConfig, ids: Ids
) -> bool:
    """End a job that waits; False where it is no longer waiting."""
    at = to_text(now)
    changed = tx.run(
        "end_queued_job", id=job.id, attempt=job.attempt, status=status.value, error=reason, now=at
    )
    if changed != 1:
        return False
    _record_end(tx, job.id, job.attempt, status, reason, at)
    # The attempt before, or where it ended once already without having run.
    rows = (f"{job.id}-{job.attempt - 1}", f"{job.id}-0")
    last = {"status": status.value, "error": reason}
    if not any(tx.run("end_last_attempt", id=row, **last) for row in rows):
        _log_without_attempt(tx, job, status, reason, at)
    told = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "status": status.value,
        "error": reason,
    }
    notices.post(tx, Notice("jobs", f"job.{status}", told), now, job_id=job.id, plugin=job.plugin)
    timed_out = job.attempt > 1 and _timed_out(tx, job.id, job.attempt - 1)
    end = End(job, status, now, error=reason, cancelled=True, timed_out=timed_out)
    ended(tx, end, tx_config, ids)
    return True


def _timed_out(tx: Tx, job_id: str, attempt: int) -> bool:
    return tx.one("attempt_timed_out", id=job_id, attempt=attempt) is not None


def ended(tx: Tx, end: End, tx_config: TxConfig, ids: Ids) -> None:
    """Everything that a job's end brings with it."""
    job = end.job
    if job.schedule_id is not None:
        _tell_schedule(tx, end, job.schedule_id, tx_config)
    if job.plugin in tx_config.notify and _is_root(job):
        _fire_hooks(tx, end, tx_config, ids)
    if job.scope_id is not None:
        close_upwards(tx, job.scope_id, tx_config, ids, end.at)


def _is_root(job: Job) -> bool:
    """What follows a split that an instance began with has no parent, and is no root."""
    followed = job.scope_id is not None and job.submitted_by == SubmittedBy.ROUTE
    return job.parent_job_id is None and not followed


def write_intents(
    tx: Tx, intents: tuple[Intent, ...], place: Place, tx_config: TxConfig, ids: Ids, now: datetime
) -> Spawned:
    """Write what routing decided, and end at once what must not or need not run."""
    spawned = spawn.write(tx, intents, place, tx_config, ids, now)
    for job_id, reason in spawned.over_limit:
        _end_over_limit(tx, job_id, reason, tx_config, ids, now)
    for scope_id, existing in spawned.skipped:
        scope = tx.one("scope_locked", id=scope_id)
        assert scope is not None
        _end_scope(tx, scope, "skipped", now, f"deduplicated: job {existing} makes it needless")
    for scope_id in reversed(spawned.scope_ids):
        close_upwards(tx, scope_id, tx_config, ids, now)
    return spawned


def close_upwards(
    tx: Tx, scope_id: str | None, tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    """End the scope if nothing in it can go on, then look at the one around it."""
    while scope_id is not None:
        scope = tx.one("scope_locked", id=scope_id)
        if scope is None or scope[9] != "open":
            return
        if tx.one("scope_is_busy", id=scope_id) is not None:
            return
        parent_id, split, join_always = scope[1], scope[3], scope[7]
        badly = tx.one("scope_went_badly", id=scope_id)
        if badly is not None and not (split and join_always):
            _end_scope(tx, scope, "failed", now, badly[0])
        elif split:
            _join(tx, scope, tx_config, ids, now)
        else:
            _end_scope(tx, scope, "ended", now)
        scope_id = parent_id


def _end_scope(tx: Tx, scope: Row, status: str, now: datetime, reason: str | None = None) -> None:
    scope_id, pipeline, split = scope[0], scope[2], scope[3]
    tx.run("end_scope", id=scope_id, status=status, reason=reason, now=to_text(now))
    if not split:
        told = {"instance_id": scope_id, "pipeline": pipeline, "status": status, "reason": reason}
        notice = Notice("pipelines", f"pipeline.{status}", told)
        notices.post(tx, notice, now, job_id=scope_id)


def _join(tx: Tx, scope: Row, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
    """End the split and make what follows it, in the scope around it, as of an event whose id is
    the scope's."""
    scope_id, parent_id, context_id = scope[0], scope[1], scope[8]
    rows = tx.all("ended_jobs_of_scope", id=scope_id)
    ends = [
        EndedJob(id, parent, at, step, JobStatus(status), _result_of(response), bool(joined), error)
        for id, parent, at, step, status, response, joined, error in rows
    ]
    entered = _split_scope(scope, tx.one("context", id=context_id))
    routing = tx_config.router.join(entered, ends, now=now, event_id=scope_id)
    if routing.unrouted:
        _end_scope(tx, scope, "failed", now, routing.unrouted[0].reason)
        return
    _end_scope(tx, scope, "ended", now)
    place = Place(parent_id, context_id, join_of=scope_id)
    write_intents(tx, routing.intents, place, tx_config, ids, now)


def _split_scope(scope: Row, context: Row | None) -> SplitScope:
    _, _, pipeline, split, branch, parent_job_id, hops, _, _, _, *join = scope
    return SplitScope(
        pipeline,
        split,
        branch,
        parent_job_id,
        hops,
        orjson.loads(context[0]) if context else {},
        None if join[0] is None else JoinStep(*join),
    )


def _result_of(response: str | None) -> Any:
    return None if response is None else orjson.loads(response).get("result")


def _end_over_limit(
    tx: Tx, job_id: str, reason: str, tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    job = enqueue.load(tx, job_id)
    if job is not None:
        end_queued(tx, job, JobStatus.DEAD, reason, now, tx_config, ids)


def _fire_hooks(tx: Tx, end: End, tx_config: TxConfig, ids: Ids) -> None:
    job = end.job
    log = tx.one("result_of", id=f"{job.id}-{job.attempt}")
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
        result=_result_of(log[0]) if log else None,
    )
    event_ids = [ids.next() for _ in range(3)]
    routing = tx_config.router.hooks(root, now=end.at, event_ids=event_ids)
    if routing.intents:
        write_intents(tx, routing.intents, Place(), tx_config, ids, end.at)


def _tell_schedule(tx: Tx, end: End, schedule_id: str, tx_config: TxConfig) -> None:
    job = end.job
    result = Result.of(end.status, cancelled=end.cancelled)
    if result is Result.SUCCESS:
        at = to_text(end.at)
        tx.run("entry_succeeded", plugin=job.plugin, schedule_id=schedule_id, now=at)
    breakers.job_ended(
        tx,
        plugin=job.plugin,
        command=job.command,
        job_id=job.id,
        result=result,
        policy=tx_config.breaker(job.plugin),
        now=end.at,
    )


def _record_end(tx: Tx, job_id: str, attempt: int, status: JobStatus, reason: str, at: str) -> None:
    edges(JobStatus.QUEUED, (status,))
    tx.run(
        "insert_transition",
        job_id=job_id,
        from_status=JobStatus.QUEUED.value,
        to_status=status.value,
        attempt=attempt,
        reason=reason,
        now=at,
    )


def _log_without_attempt(tx: Tx, job: Job, status: JobStatus, reason: str, at: str) -> None:
    tx.run(
        "insert_log",
        id=f"{job.id}-0",
        job_id=job.id,
        plugin=job.plugin,
        command=job.command,
        status=status.value,
        result=None,
        attempt=0,
        submitted_by=job.submitted_by,
        created_at=to_text(job.created_at),
        started_at=None,
        now=at,
        duration_ms=0.0,
        error=reason,
        stdout=None,
        stderr=None,
        logs=None,
        parent_job_id=job.parent_job_id,
        source_event_id=job.source_event_id,
    )
