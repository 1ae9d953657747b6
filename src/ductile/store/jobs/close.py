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

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.flow.limits import OnFull
from ductile.core.jobs.state_machine import edges
from ductile.core.pipelines.graph import WAIT_PLUGIN
from ductile.core.pipelines.hooks import RootEnd
from ductile.core.pipelines.intents import Intent, JoinStep, Unrouted
from ductile.core.pipelines.join_payload import EndedJob
from ductile.core.pipelines.lineage import SplitScope
from ductile.core.schedules.breaker import Result
from ductile.core.waits.decision import WaitEnd, WaitStatus
from ductile.core.waits.end import settle_wait
from ductile.model import Cancellation, Event, Job, JobStatus, Notice, RunStatus, SubmittedBy
from ductile.store import breakers, nodes, notices, waits
from ductile.store.engines.api import Tx
from ductile.store.engines.queries import NEVER
from ductile.store.flow import run_limits
from ductile.store.jobs import cancel_requests, read, runs, scopes, spawn
from ductile.store.jobs.scopes import ScopeRow
from ductile.store.jobs.spawn import Spawned, SpawnPoint
from ductile.store.tx_config import TxConfig
from ductile.store.waits import AwaitedEvent, WaitRow

MOST_JOBS = 2000
"""How many jobs of a run are ended at once when a newer run replaces it."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job whose row has its final status."""

    job: Job
    status: JobStatus
    error: str | None = None
    duration: float = 0.0
    cancelled: bool = False
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class _OverLimit:
    """A queued job that must not run, because it exceeds a limit."""

    job_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Superseded:
    """A queued job that the job of a newer event replaces."""

    job_id: str
    newer_job_id: str


@dataclass(frozen=True, slots=True)
class _SkippedInstance:
    """A pipeline instance whose first jobs were all deduplicated."""

    scope_id: str
    existing_job_id: str


@dataclass(frozen=True, slots=True)
class _TakeTurn:
    """A held run of a pipeline with a limit, which may begin."""

    run_id: str
    must_wait: bool = False
    """It waits if its key is full, whatever `on_full` says."""


@dataclass(frozen=True, slots=True)
class _OpenKey:
    """A run of a pipeline with a limit has ended."""

    pipeline: str
    limit_key: str


@dataclass(frozen=True, slots=True)
class _ScopeCheck:
    """A scope that may have nothing left to wait for."""

    scope_id: str


@dataclass(frozen=True, slots=True)
class _Spawn:
    """Intents to write."""

    intents: Sequence[Intent]
    point: SpawnPoint


@dataclass(frozen=True, slots=True)
class _AwaitedEvent:
    """An event that may end waits."""

    event: Event


_Work = (
    JobEnd
    | _OverLimit
    | _Superseded
    | _SkippedInstance
    | _TakeTurn
    | _OpenKey
    | _ScopeCheck
    | _Spawn
    | _AwaitedEvent
)


def close_job(tx: Tx, end: JobEnd, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
    """Do everything that follows from a job's end."""
    job = end.job
    # Nothing follows from most jobs, which are settled thousands of times per second.
    has_owner = job.schedule_id is not None or job.scope_id is not None
    if has_owner or job.plugin in tx_config.notify:
        _Closing(tx, tx_config, ids, now).run([end])


def end_queued(
    tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime, tx_config: TxConfig, ids: Ids
) -> bool:
    """End a queued job; False if it is no longer queued."""
    end = _end_queued_row(tx, job, status, reason, now)
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
) -> Spawned:
    """Write what routing decided, and end what ends at once; returns what the intents became."""
    spawned = spawn.insert_intents(tx, intents, point, tx_config, ids, now)
    _Closing(tx, tx_config, ids, now).run(_work_after(spawned))
    return spawned


def post_unrouted(tx: Tx, job: Job, unrouted: Iterable[Unrouted], now: datetime) -> None:
    """Post a notice for each event of the job that no route or step names."""
    for item in unrouted:
        fields = {"event_id": item.event_id, "pipeline": item.pipeline, "reason": item.reason}
        notices.post(tx, Notice("events", "event.unrouted", fields), now, job_id=job.id)


def end_wait(
    tx: Tx, row: WaitRow, end: WaitEnd, tx_config: TxConfig, ids: Ids, now: datetime
) -> JobStatus | None:
    """End a wait and continue its chain; returns the new status of its job.

    None if the wait has ended before: of several ends exactly one takes effect. A wait of a
    pipeline that only other nodes know is left to them; its job is still queued.
    """
    if _is_left_to_others(tx, row.pipeline, tx_config):
        return JobStatus.QUEUED if waits.hand_over(tx, row, end) else None
    closing = _Closing(tx, tx_config, ids, now)
    work = closing.end_wait(row, end)
    closing.run(work)
    return next((item.status for item in work if isinstance(item, JobEnd)), None)


def continue_event(tx: Tx, event_id: str, tx_config: TxConfig, ids: Ids, now: datetime) -> bool:
    """End further waits that a stored event matches; False if another node does that now."""
    if not waits.lock_event(tx, event_id):
        return False
    item = waits.load_event(tx, event_id)
    if item is not None:
        closing = _Closing(tx, tx_config, ids, now)
        closing.run(closing.continue_event(item))
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
    work = [_TakeTurn(run_id, must_wait) for run_id in run_ids]
    _Closing(tx, tx_config, ids, now).run(work)


def cancel_displaced(
    tx: Tx, run_ids: Sequence[str], tx_config: TxConfig, ids: Ids, now: datetime
) -> None:
    """Cancel what is left of runs for which newer runs wait."""
    closing = _Closing(tx, tx_config, ids, now)
    for run_id in run_ids:
        closing.run(closing.cancel_displaced(run_id))


def check_displaced(tx: Tx, scope_id: str, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
    """End a job that returns to the queue, if its run is being cancelled for a newer one."""
    run = scopes.find_run_id(tx, scope_id)
    if run is not None:
        cancel_displaced(tx, [run], tx_config, ids, now)


def _is_left_to_others(tx: Tx, pipeline: str, tx_config: TxConfig) -> bool:
    """Whether this configuration does not have the pipeline, and that of another node does."""
    is_known = pipeline in tx_config.router.pipelines
    return not is_known and pipeline in nodes.list_pipelines_of_others(tx, "")


class _Closing:
    """The work list of one transaction."""

    def __init__(self, tx: Tx, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
        self._tx, self._tx_config, self._ids, self._now = tx, tx_config, ids, now

    def run(self, work: Sequence[_Work]) -> None:
        todo = list(reversed(work))
        while todo:
            todo.extend(reversed(self._do(todo.pop())))

    def _do(self, work: _Work) -> Sequence[_Work]:
        """Do one piece of work; returns what follows from it."""
        match work:
            case JobEnd():
                return self._follow_job_end(work)
            case _OverLimit(job_id, reason):
                return self._end_over_limit(job_id, reason)
            case _Superseded(job_id, newer_job_id):
                return self._supersede(job_id, newer_job_id)
            case _SkippedInstance(scope_id, existing_job_id):
                return self._skip_instance(scope_id, existing_job_id)
            case _TakeTurn(run_id, must_wait):
                return self._take_turn(run_id, must_wait=must_wait)
            case _OpenKey(pipeline, limit_key):
                return self._open_key(pipeline, limit_key)
            case _ScopeCheck(scope_id):
                return self._check_scope(scope_id)
            case _AwaitedEvent(event):
                return self._match_waits(event)
            case _Spawn(intents, point):
                return _work_after(
                    spawn.insert_intents(
                        self._tx, intents, point, self._tx_config, self._ids, self._now
                    )
                )

    def end_wait(self, row: WaitRow, end: WaitEnd) -> list[_Work]:
        """Write the end of a wait; returns what follows, nothing if it has ended before."""
        tx, job = self._tx, read.load_job(self._tx, row.job_id)
        if job is None or job.attempt != row.attempt or job.status is not JobStatus.QUEUED:
            return []
        context = _load_context(tx, job.entered_context_id)
        router = self._tx_config.router
        settled = settle_wait(job, row.open_wait, end, context, router, self._ids)
        if not waits.end_job(tx, row, settled, end):
            return []
        context_id = spawn.insert_own_context(tx, job, settled.context, self._now)
        post_unrouted(tx, job, settled.unrouted, self._now)
        point = SpawnPoint(job.scope_id, context_id)
        ended = JobEnd(job, settled.status, settled.error, settled.duration)
        return [_Spawn(settled.intents, point), ended]

    def _match_waits(self, event: Event) -> list[_Work]:
        """End the waits that this event matches; a loop continues where there are many."""
        work, after = self._match_batch(event)
        if after is not None:
            waits.store_event(self._tx, self._ids.next(), event, after, self._now)
        return work

    def continue_event(self, item: AwaitedEvent) -> list[_Work]:
        work, after = self._match_batch(item.event, item.since, item.after)
        waits.advance_event(self._tx, item.id, after)
        return work

    def _match_batch(
        self, event: Event, since: str = NEVER, after: str = ""
    ) -> tuple[list[_Work], str | None]:
        rows, last = waits.match_event(self._tx, event, since, after)
        work: list[_Work] = []
        for row in rows:
            end = WaitEnd(WaitStatus.MATCHED, self._now, event=event)
            if _is_left_to_others(self._tx, row.pipeline, self._tx_config):
                waits.hand_over(self._tx, row, end)
            else:
                work += self.end_wait(row, end)
        return work, last

    def _follow_job_end(self, end: JobEnd) -> list[_Work]:
        job = end.job
        work: list[_Work] = []
        if job.schedule_id is not None:
            self._update_schedule(end, job.schedule_id)
        if job.plugin in self._tx_config.notify and _is_root(job):
            work.append(_Spawn(self._route_hooks(end), SpawnPoint()))
        if job.scope_id is not None:
            work.append(_ScopeCheck(job.scope_id))
        return work

    def _update_schedule(self, end: JobEnd, schedule_id: str) -> None:
        job = end.job
        result = Result.of(end.status, cancelled=end.cancelled)
        if result is Result.SUCCESS:
            at = to_text(self._now)
            self._tx.run("entry_succeeded", plugin=job.plugin, schedule_id=schedule_id, now=at)
        breakers.record_result(
            self._tx,
            plugin=job.plugin,
            command=job.command,
            job_id=job.id,
            result=result,
            policy=self._tx_config.breaker(job.plugin),
            now=self._now,
        )

    def _route_hooks(self, end: JobEnd) -> Sequence[Intent]:
        job = end.job
        log = self._tx.one("result_of", id=f"{job.id}-{job.attempt}")
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
            result=_parse_result(log[0]) if log else None,
        )
        event_ids = [self._ids.next() for _ in range(3)]
        return self._tx_config.router.hooks(root, now=self._now, event_ids=event_ids).intents

    def _end_over_limit(self, job_id: str, reason: str) -> list[_Work]:
        job = read.load_job(self._tx, job_id)
        assert job is not None, "this transaction has just written it"
        end = _end_queued_row(self._tx, job, JobStatus.DEAD, reason, self._now)
        return [] if end is None else [end]

    def _supersede(self, job_id: str, newer_job_id: str) -> list[_Work]:
        """Skip the job, and its run without the handlers of a run that has ended."""
        job = read.load_job(self._tx, job_id)
        assert job is not None, "this transaction has just taken its place"
        reason = f"superseded by job {newer_job_id} (debounce)"
        end = _end_queued_row(self._tx, job, JobStatus.SKIPPED, reason, self._now)
        if end is None:
            return []
        scope = None if job.scope_id is None else scopes.lock_scope(self._tx, job.scope_id)
        if scope is None or scope.status != "open":
            return [end]
        return [end, *self._end_scope(scope, "skipped", reason)]

    def _skip_instance(self, scope_id: str, existing_job_id: str) -> list[_Work]:
        scope = scopes.lock_scope(self._tx, scope_id)
        assert scope is not None, "this transaction has just written it"
        return self._end_scope(scope, "skipped", f"deduplicated: job {existing_job_id} replaces it")

    def _end_scope(self, scope: ScopeRow, status: str, reason: str | None = None) -> list[_Work]:
        scopes.end_scope(self._tx, scope, status, self._now, reason=reason)
        return [] if scope.limit_key is None else [_OpenKey(scope.pipeline, scope.limit_key)]

    def _take_turn(self, run_id: str, *, must_wait: bool) -> list[_Work]:
        found = self._tx.one("limited_run", id=run_id)
        limit = None if found is None else self._tx_config.run_limits.get(found[1])
        turn = run_limits.take_turn(self._tx, run_id, limit, self._now, must_wait=must_wait)
        work: list[_Work] = []
        for skipped_id, reason in turn.skipped:
            work += self._skip_run(skipped_id, reason)
        for displaced_id in turn.displaced:
            work += self.cancel_displaced(displaced_id)
        return work

    def _open_key(self, pipeline: str, limit_key: str) -> list[_Work]:
        limit = self._tx_config.run_limits.get(pipeline)
        if limit is not None or not _is_left_to_others(self._tx, pipeline, self._tx_config):
            run_limits.open_key(self._tx, pipeline, limit_key, limit)
        return []

    def _skip_run(self, run_id: str, reason: str) -> list[_Work]:
        """End a run that never began, without the handlers of a run that has ended."""
        scope = scopes.lock_scope(self._tx, run_id)
        if scope is None or scope.status != "open":
            return []
        found = runs.list_job_ids(self._tx, run_id, (JobStatus.QUEUED,), MOST_JOBS)
        self._tx.run("end_scopes_of_run", id=run_id, reason=reason, now=to_text(self._now))
        work = self._end_scope(scope, "skipped", reason)
        return [*self._end_jobs(found, JobStatus.SKIPPED, reason), *work]

    def cancel_displaced(self, run_id: str) -> list[_Work]:
        """End the queued jobs of a run for which a newer run waits, and cancel the running ones."""
        newer = run_limits.find_displaced(self._tx, run_id)
        if newer is None:
            return []
        for job_id in runs.list_job_ids(self._tx, run_id, (JobStatus.RUNNING,), MOST_JOBS):
            job = read.load_job(self._tx, job_id)
            if job is not None and self._tx.run("displace_job", id=job.id, attempt=job.attempt):
                why = Cancellation.RUN_DISPLACED
                cancel_requests.request_cancel(self._tx, job, why, self._now)
        queued = runs.list_job_ids(self._tx, run_id, (JobStatus.QUEUED,), MOST_JOBS)
        return list(self._end_jobs(queued, JobStatus.DEAD, run_limits.describe_newer(newer)))

    def _end_jobs(self, job_ids: Sequence[str], status: JobStatus, reason: str) -> Iterator[JobEnd]:
        for job in filter(None, (read.load_job(self._tx, job_id) for job_id in job_ids)):
            end = _end_queued_row(self._tx, job, status, reason, self._now)
            if end is not None:
                yield end

    def _check_scope(self, scope_id: str) -> list[_Work]:
        """End the scope if nothing in it can continue; the scope around it is next."""
        scope = scopes.lock_scope(self._tx, scope_id)
        if scope is None or scope.status != "open":
            return []
        if scopes.is_busy(self._tx, scope_id):
            # A step of a run that is being cancelled may have led to others.
            limit = self._tx_config.run_limits.get(scope.pipeline)
            if limit is None or limit.on_full is not OnFull.CANCEL:
                return []
            return self.cancel_displaced(scopes.find_run_id(self._tx, scope_id) or scope_id)
        work: list[_Work] = []
        failure = self._tx.one("scope_failure", id=scope_id)
        if failure is not None and not (scope.split and scope.join_always):
            reason = scopes.describe_failure(*failure[:5])
            if scope.displaced_by is not None:
                reason = run_limits.describe_newer(scope.displaced_by)
            work += self._end_scope(scope, "failed", reason)
            work += self._start_handlers(scope, RunStatus.FAILED, reason)
        elif scope.split:
            work += self._join(scope)
        else:
            work += self._end_scope(scope, "ended")
            if scope.schedule_id is not None:
                key = {"pipeline": scope.pipeline, "schedule_id": scope.schedule_id}
                self._tx.run("run_succeeded", now=to_text(self._now), **key)
            work += self._start_handlers(scope, RunStatus.SUCCEEDED)
        if scope.parent_id is not None:
            work.append(_ScopeCheck(scope.parent_id))
        return work

    def _start_handlers(
        self, scope: ScopeRow, status: RunStatus, reason: str | None = None
    ) -> list[_Work]:
        """Start `on_failure`, `on_success` and `always` of a run that has just ended."""
        router = self._tx_config.router
        if scope.split or not router.has_handlers(scope.pipeline):
            return []
        end = runs.describe_end(self._tx, scope, status, reason)
        event_ids = [self._ids.next() for _ in range(2)]
        intents = router.handlers(end, now=self._now, event_ids=event_ids).intents
        return [_Spawn(intents, SpawnPoint())]

    def _join(self, scope: ScopeRow) -> list[_Work]:
        """End the split and continue in the scope around it, by an event with this scope's id."""
        rows = self._tx.all("ended_jobs_of_scope", id=scope.id)
        ends = [
            EndedJob(id, parent, at, step, JobStatus(status), _parse_result(log), bool(joined), err)
            for id, parent, at, step, status, log, joined, err in rows
        ]
        split = _split_scope(self._tx, scope)
        routing = self._tx_config.router.join(split, ends, now=self._now, event_id=scope.id)
        if routing.unrouted:
            reason = routing.unrouted[0].reason
            scopes.end_scope(self._tx, scope, "failed", self._now, reason=reason)
            return []
        scopes.end_scope(self._tx, scope, "ended", self._now)
        point = SpawnPoint(scope.parent_id, scope.context_id, join_of=scope.id)
        return [_Spawn(routing.intents, point)]


def _work_after(spawned: Spawned) -> list[_Work]:
    """What of it ends at once. Inner scopes come before the scopes around them."""
    return [
        *map(_AwaitedEvent, spawned.awaited),
        *(_OverLimit(job_id, reason) for job_id, reason in spawned.over_limit),
        *(_Superseded(job_id, newer) for job_id, newer in spawned.superseded),
        *(_SkippedInstance(scope_id, job_id) for scope_id, job_id in spawned.skipped),
        *map(_TakeTurn, spawned.held),
        *(_ScopeCheck(scope_id) for scope_id in reversed(spawned.scope_ids)),
    ]


def _is_root(job: Job) -> bool:
    """A join after a split that began its instance has no parent, but is not a root."""
    is_join = job.scope_id is not None and job.submitted_by == SubmittedBy.ROUTE
    return job.parent_job_id is None and not is_join


def _split_scope(tx: Tx, scope: ScopeRow) -> SplitScope:
    join = None
    if scope.join_step is not None:
        join = JoinStep(scope.join_step, scope.join_plugin or "", scope.join_command or "")
    return SplitScope(
        scope.pipeline,
        scope.split,
        scope.branch,
        scope.parent_job_id,
        scope.hops,
        _load_context(tx, scope.context_id),
        join,
    )


def _load_context(tx: Tx, context_id: str | None) -> dict[str, Any]:
    row = tx.one("context", id=context_id or "")
    return orjson.loads(row[0]) if row else {}


def _parse_result(response: str | None) -> Any:
    return None if response is None else orjson.loads(response).get("result")


def _end_queued_row(
    tx: Tx, job: Job, status: JobStatus, reason: str, now: datetime
) -> JobEnd | None:
    """Move a queued job to its final status; None if it is no longer queued."""
    at = to_text(now)
    changed = tx.run(
        "end_queued_job", id=job.id, attempt=job.attempt, status=status.value, error=reason, now=at
    )
    if changed != 1:
        return None
    edges(JobStatus.QUEUED, (status,))
    tx.append(
        "insert_transition",
        job_id=job.id,
        from_status=JobStatus.QUEUED.value,
        to_status=status.value,
        attempt=job.attempt,
        reason=reason,
        now=at,
    )
    if job.plugin == WAIT_PLUGIN:
        end = WaitEnd(WaitStatus.CANCELLED, now, comment=reason)
        waits.record_end(tx, job.id, job.attempt, end)
    _log_end(tx, job, status, reason, at)
    fields = {
        "job_id": job.id,
        "plugin": job.plugin,
        "command": job.command,
        "attempt": job.attempt,
        "status": status.value,
        "error": reason,
    }
    notices.post(tx, Notice("jobs", f"job.{status}", fields), now, job_id=job.id, plugin=job.plugin)
    last = {"id": job.id, "attempt": job.attempt - 1}
    timed_out = job.attempt > 1 and tx.one("attempt_timed_out", **last) is not None
    return JobEnd(job, status, error=reason, cancelled=True, timed_out=timed_out)


def _log_end(tx: Tx, job: Job, status: JobStatus, reason: str, at: str) -> None:
    """Put the final status in the log row of the last attempt, or in a row of its own."""
    # Attempt 0 is the row of a job that ended before without having run, and was retried. The row
    # of an earlier wait keeps how that wait ended.
    for attempt in (0,) if job.plugin == WAIT_PLUGIN else (job.attempt - 1, 0):
        row = f"{job.id}-{attempt}"
        if tx.run("end_last_attempt", id=row, status=status.value, error=reason):
            return
    tx.append(
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
        boot=None,
    )
