"""The end of a job and everything that follows from it, in one transaction.

Every way to end a job (settle, cancel, recovery, reload, a limit) comes here, and so does every
event that starts jobs, because some of those end at once. One loop works through a list:

- a **job that ended** updates its schedule and breaker, fires the hooks of a root job, and closes
  the scope that it belongs to;
- a **scope** that has no queued or running job and no open child ends. A split that ended well
  continues with its join, exactly once; if the join cannot be routed, the split has failed. The
  scope around it is next. A pipeline instance starts its `on_failure`, `on_success` and `always`;
- a **run** of a pipeline with a limit takes its turn: it begins, waits, ends as skipped, or cancels
  an older one. Each end of such a run lets the next run of its key begin;
- **intents** become jobs and scopes. Jobs over a limit end at once, instances whose jobs were all
  deduplicated are skipped, and a scope that opened without a job closes.

Each step returns the work that follows from it. That work is done before the work that was
already on the list, so that a job's consequences are complete before those of its neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from ductile.clock import Ids
from ductile.core.pipelines.intents import Intent
from ductile.core.waits.decision import WaitEnd
from ductile.model import Job, JobStatus
from ductile.store.engines.api import Tx
from ductile.store.jobs import scopes, spawn
from ductile.store.jobs.closing import job_end, queued_jobs, run_turns, scope_end, wait_end
from ductile.store.jobs.closing.work import (
    ArrivedEvent,
    Closing,
    JobEnd,
    OpenKey,
    OverLimit,
    ScopeCheck,
    SkippedInstance,
    Spawn,
    Superseded,
    TakeTurn,
    Work,
    work_after,
)
from ductile.store.jobs.spawn import Spawned, SpawnPoint
from ductile.store.tx_config import TxConfig
from ductile.store.waits import awaited_events, parked_jobs
from ductile.store.waits.wait_rows import WaitRow


def close_job(tx: Tx, end: JobEnd, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
    """Do everything that follows from a job's end."""
    job = end.job
    # Nothing follows from most jobs, which are settled thousands of times per second.
    has_owner = job.schedule_id is not None or job.scope_id is not None
    if has_owner or job.plugin in tx_config.notify:
        _run(Closing(tx, tx_config, ids, now), [end])


def end_queued(
    tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime, tx_config: TxConfig, ids: Ids
) -> bool:
    """End a queued job; False if it is no longer queued."""
    end = queued_jobs.end_queued_row(tx, job, status, reason, now)
    if end is None:
        return False
    close_job(tx, end, tx_config, ids, now)
    return True


def write_intents(
    tx: Tx,
    intents: Sequence[Intent],
    point: SpawnPoint,
    tx_config: TxConfig,
    ids: Ids,
    now: datetime,
    *,
    is_new_event: bool = False,
) -> Spawned:
    """Write what routing decided, and end what ends at once; returns what the intents became."""
    spawned = spawn.insert_intents(
        tx, intents, point, tx_config, ids, now, is_new_event=is_new_event
    )
    # Nothing follows from most of them.
    if work := work_after(spawned):
        _run(Closing(tx, tx_config, ids, now), work)
    return spawned


def end_wait(
    tx: Tx, row: WaitRow, end: WaitEnd, tx_config: TxConfig, ids: Ids, now: datetime
) -> JobStatus | None:
    """End a wait and continue its chain; returns the new status of its job.

    None if the wait has ended before: of several ends exactly one takes effect. A wait of a
    pipeline that only other nodes know is left to them; its job is still queued.
    """
    closing = Closing(tx, tx_config, ids, now)
    if closing.is_left_to_others(row.pipeline):
        return JobStatus.QUEUED if parked_jobs.hand_over(tx, row, end) else None
    work = wait_end.end_wait(closing, row, end)
    _run(closing, work)
    return next((item.status for item in work if isinstance(item, JobEnd)), None)


def continue_event(tx: Tx, event_id: str, tx_config: TxConfig, ids: Ids, now: datetime) -> bool:
    """End further waits that a stored event matches; False if another node does that now."""
    if not awaited_events.lock_event(tx, event_id):
        return False
    item = awaited_events.load_event(tx, event_id)
    if item is not None:
        closing = Closing(tx, tx_config, ids, now)
        _run(closing, wait_end.continue_event(closing, item))
    return True


def take_turns(
    tx: Tx,
    run_ids: Sequence[str],
    tx_config: TxConfig,
    ids: Ids,
    now: datetime,
    *,
    must_wait: bool = False,
) -> None:
    """Let held runs of pipelines with a limit begin, if their keys are not full."""
    work = [TakeTurn(run_id, must_wait) for run_id in run_ids]
    _run(Closing(tx, tx_config, ids, now), work)


def cancel_displaced(
    tx: Tx, run_ids: Sequence[str], tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    """Cancel what is left of runs for which newer runs wait."""
    closing = Closing(tx, tx_config, ids, now)
    for run_id in run_ids:
        _run(closing, run_turns.cancel_displaced(closing, run_id))


def check_displaced(tx: Tx, scope_id: str, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
    """End a job that returns to the queue, if its run is being cancelled for a newer one."""
    run = scopes.find_run_id(tx, scope_id)
    if run is not None:
        cancel_displaced(tx, [run], tx_config, ids, now)


def _run(closing: Closing, work: Sequence[Work]) -> None:
    """Do all of the work, and all that follows from it."""
    todo = list(reversed(work))
    while todo:
        todo.extend(reversed(_do(closing, todo.pop())))


def _do(closing: Closing, work: Work) -> Sequence[Work]:
    """Do one piece of work; returns what follows from it."""
    match work:
        case JobEnd():
            return job_end.follow_job_end(closing, work)
        case OverLimit(job_id, reason):
            return queued_jobs.end_over_limit(closing, job_id, reason)
        case Superseded(job_id, newer_job_id):
            return run_turns.supersede(closing, job_id, newer_job_id)
        case SkippedInstance(scope_id, existing_job_id):
            return run_turns.skip_instance(closing, scope_id, existing_job_id)
        case TakeTurn(run_id, must_wait):
            return run_turns.take_turn(closing, run_id, must_wait=must_wait)
        case OpenKey(pipeline, limit_key):
            return run_turns.open_key(closing, pipeline, limit_key)
        case ScopeCheck(scope_id):
            return scope_end.check_scope(closing, scope_id)
        case ArrivedEvent(event):
            return wait_end.match_waits(closing, event)
        case Spawn(intents, point):
            spawned = spawn.insert_intents(
                closing.tx, intents, point, closing.tx_config, closing.ids, closing.now
            )
            return work_after(spawned)
