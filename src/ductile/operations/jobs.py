"""What an operator does to a job: cancel, retry, replay, acknowledge.

With `dry` a function raises what it would raise, and changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.jobs.commands import HANDLE
from ductile.core.jobs.plugin_protocol import envelope_of, without_nul
from ductile.core.jobs.state_machine import ENDED, ENDED_BADLY
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.dispatch.workers import CANCEL_GRACE
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused
from ductile.model import (
    CANCELLED_IN_QUEUE,
    Cancellation,
    Job,
    JobStatus,
    Json,
    Notice,
    SubmittedBy,
)
from ductile.operations import job_tree
from ductile.operations.flow import holds
from ductile.operations.waits.describe import describe_row
from ductile.store import failures, notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import cancel_requests, close, enqueue, read, requeue
from ductile.store.waits.wait_rows import find_open_wait

START_TIMEOUT = 5.0
"""Seconds that a claimed job may take to start its process, which can then be killed."""
LOCAL_POLL = 0.01
REMOTE_TIMEOUT = CANCEL_GRACE + START_TIMEOUT
"""Seconds that another node may take to end a job: its process has its grace."""
REMOTE_POLL = 0.05


def cancel(
    gateway: Services, job_id: str, *, dry: bool = False, only: JobStatus | None = None
) -> JobStatus:
    """End a queued job or kill a running one, and return the status it had.

    With `only`, a job in another status is refused.
    """
    return JobCancellation(gateway, dry=dry, only=only)(job_id)


class JobCancellation:
    """Cancels jobs one by one; requests to other nodes go out first, then each is waited for."""

    def __init__(
        self, gateway: Services, *, dry: bool = False, only: JobStatus | None = None
    ) -> None:
        self._gateway, self._dry, self._only = gateway, dry, only
        self._requested: dict[str, tuple[str, int, float]] = {}
        """By job id: the owner that was asked, the attempt, and when."""

    def request_remote(self, job_ids: Sequence[str]) -> None:
        """Request the end of those jobs that other nodes run."""
        if self._dry or self._only not in (None, JobStatus.RUNNING):
            return
        found = self._gateway.ledger.read(lambda tx: [read.load_job(tx, id) for id in job_ids])
        for job in found:
            if job is not None and job.status is JobStatus.RUNNING:
                self._request(job)

    def __call__(self, job_id: str) -> JobStatus:
        gateway, begun = self._gateway, self._gateway.clock.monotonic()
        while True:
            job = gateway.ledger.read(lambda tx: load_job(tx, job_id))
            if self._is_ended_by_request(job):
                return JobStatus.RUNNING
            self._check(job)
            if self._dry or self._try_to_end(job):
                return job.status
            # Its status changed meanwhile, it has no process yet, or another node owns it.
            if gateway.clock.monotonic() > self._deadline(job_id, begun):
                raise self._refuse(job)
            pause = REMOTE_POLL if job_id in self._requested else LOCAL_POLL
            gateway.clock.wait(threading.Event(), pause)

    def _check(self, job: Job) -> None:
        if job.status in ENDED:
            raise Refused(
                f"job {job.id} is {job.status}; only queued and running jobs can be cancelled"
            )
        if self._only not in (None, job.status):
            raise Refused(f"job {job.id} is {job.status} now")

    def _try_to_end(self, job: Job) -> bool:
        if job.status is JobStatus.QUEUED:
            return bool(end_queued(self._gateway, (job.id,)))
        if self._gateway.cancel_running(job.id, Cancellation.OPERATOR):
            return True
        self._request(job)
        return False

    def _request(self, job: Job) -> None:
        """Once per attempt, and only from a living node: the jobs of dead nodes are recovered."""
        gateway, owner = self._gateway, job.owner
        if owner is None or owner == gateway.boot:
            return
        known = self._requested.get(job.id)
        if (known and known[:2] == (owner, job.attempt)) or gateway.ledger.boot_is_dead(owner):
            return
        now = gateway.clock.now()
        gateway.ledger.write(
            lambda tx: cancel_requests.request_cancel(tx, job, Cancellation.OPERATOR, now)
        )
        self._requested[job.id] = (owner, job.attempt, gateway.clock.monotonic())

    def _is_ended_by_request(self, job: Job) -> bool:
        dead = job.status is JobStatus.DEAD and job.last_error == Cancellation.OPERATOR.value
        return dead and job.id in self._requested

    def _deadline(self, job_id: str, begun: float) -> float:
        known = self._requested.get(job_id)
        return begun + START_TIMEOUT if known is None else known[2] + REMOTE_TIMEOUT

    def _refuse(self, job: Job) -> Refused:
        if job.id not in self._requested:
            return Refused(f"job {job.id} is {job.status}, but no worker of this gateway owns it")
        return Refused(
            f"job {job.id} is {job.status}, and the node that runs it has not answered the cancel "
            "request yet",
            run=f"ductile job cancel {job.id} --force",
        )


def end_queued(gateway: Services, job_ids: Sequence[str]) -> frozenset[str]:
    """End those of the jobs that are queued, in one transaction, and return their ids."""
    tx_config, now, base_id = (
        gateway.compiled.tx_config,
        gateway.clock.now(),
        gateway.entropy.uuid(),
    )

    def work(tx: Tx) -> frozenset[str]:
        ids = Ids(base_id)
        found = (job for job in map(partial(read.load_job, tx), job_ids) if job is not None)
        return frozenset(
            job.id
            for job in found
            if close.end_queued(tx, job, JobStatus.DEAD, CANCELLED_IN_QUEUE, now, tx_config, ids)
        )

    return gateway.ledger.write(work)


@dataclass(frozen=True, slots=True)
class RetriedJob:
    """A job that was queued again, or with `dry` would be."""

    job_id: str
    status: JobStatus
    attempt: int
    max_attempts: int


class JobRetry:
    """The transaction that queues a failed or dead job again, with a fresh number of attempts, or
    makes a job ready that waits for its next attempt.
    """

    def __init__(self, gateway: Services, job_id: str, *, dry: bool = False) -> None:
        self._compiled, self._job_id, self._dry = gateway.compiled, job_id, dry
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()

    def __call__(self, tx: Tx) -> RetriedJob:
        job = load_job(tx, self._job_id)
        if (wait := find_open_wait(tx, job.id)) is not None:
            raise Refused(f"job {job.id} cannot be retried: {describe_row(wait)}")
        config = self._compiled.tx_config
        if job.status is JobStatus.QUEUED and (
            held := holds.describe_held_jobs(tx, [job.id], config)
        ):
            raise Refused(f"job {job.id} cannot be retried: {held[job.id]}")
        waits = job.status is JobStatus.QUEUED and job.next_retry_at is not None
        if job.status not in ENDED_BADLY and not waits:
            raise Refused(
                f"job {job.id} is {job.status}; only failed and dead jobs, and jobs that wait for "
                "their next attempt, can be retried"
            )
        _check_runnable(tx, self._compiled, job)
        if not self._dry:
            attempts = self._compiled.tx_config.max_attempts(job.plugin, job.command)
            retried = (
                requeue.skip_backoff(tx, job, self._now)
                if waits
                else requeue.retry_job(tx, job, attempts, self._now)
            )
            if not retried:
                raise Refused(f"job {job.id} changed meanwhile; look at it and try again")
            self._take_turn(tx, job)
            job = load_job(tx, job.id)
        return RetriedJob(job.id, job.status, job.attempt, job.max_attempts)

    def _take_turn(self, tx: Tx, job: Job) -> None:
        """A run that was reopened, or whose event was debounced, counts for its limit from now."""
        if (run := holds.find_held_run(tx, job.id)) is not None:
            config, ids = self._compiled.tx_config, Ids(self._base_id)
            close.take_turns(tx, [run.id], config, ids, self._now, must_wait=True)


@dataclass(frozen=True, slots=True)
class AcknowledgedJob:
    """A job whose failure an operator has acknowledged, or with `dry` would."""

    job_id: str
    status: JobStatus


class JobAcknowledgement:
    """The transaction that records that a failed or dead job needs no operator.

    A second one changes nothing; a retry ends it.
    """

    def __init__(self, gateway: Services, job_id: str, actor: str, *, dry: bool = False) -> None:
        self._job_id, self._actor, self._dry = job_id, actor, dry
        self._now = gateway.clock.now()

    def __call__(self, tx: Tx) -> AcknowledgedJob:
        job = load_job(tx, self._job_id)
        if job.status not in ENDED_BADLY:
            raise Refused(
                f"job {job.id} is {job.status}; only failed and dead jobs can be acknowledged"
            )
        if not self._dry:
            failures.acknowledge_job(tx, job, self._actor, self._now)
        return AcknowledgedJob(job.id, job.status)


@dataclass(frozen=True, slots=True)
class ReplayedJob:
    job_id: str | None
    """The new job; None with `dry`."""
    replay_of: str


class JobReplay:
    """The transaction that creates a new job from the payload and context of a finished one, whose
    failure `actor` acknowledges thereby.

    A `payload` that is not None replaces the old one; for `handle` that of its event.
    Its workspace is cloned from that of the old job. It belongs to no scope: the steps that
    follow it in its pipeline run, the join of a split that the old job was in does not.
    """

    def __init__(
        self,
        gateway: Services,
        job_id: str,
        by: SubmittedBy,
        actor: str,
        *,
        step: str | None = None,
        payload: Json = None,
        dry: bool = False,
    ) -> None:
        self._compiled, self._job_id, self._step, self._dry = gateway.compiled, job_id, step, dry
        self._payload = payload
        self._by, self._actor, self._now = by, actor, gateway.clock.now()
        self._id, self._event_id = gateway.entropy.uuid(), gateway.entropy.uuid()

    def __call__(self, tx: Tx) -> ReplayedJob:
        old = self._job_id if self._step is None else find_step_job(tx, self._job_id, self._step)
        job = load_job(tx, old)
        if job.status not in ENDED:
            raise Refused(f"job {old} is {job.status}; it can be replayed when it has ended")
        _check_runnable(tx, self._compiled, job)
        if not self._dry:
            self._write(tx, job)
        return ReplayedJob(None if self._dry else self._id, old)

    def _write(self, tx: Tx, job: Job) -> None:
        tx_config = self._compiled.tx_config
        tx.run(
            "insert_routed_job",
            id=self._id,
            plugin=job.plugin,
            command=job.command,
            payload=orjson.dumps(self._payload_column(job)).decode(),
            max_attempts=tx_config.max_attempts(job.plugin, job.command),
            submitted_by=self._by.value,
            dedupe_key=None,
            dedupe_ttl=None,
            now=to_text(self._now),
            parent_job_id=job.parent_job_id,
            source_event_id=self._event_id,
            snapshot_id=tx_config.snapshot_id,
            context_id=job.entered_context_id,
            hops=job.hops,
            pipeline=job.pipeline,
            step_path=job.step_path,
            branch="",
            scope_id=None,
            join_of=None,
            trace=None,
            replay_of=job.id,
        )
        column = self._payload_column(job)
        enqueue.set_limit_key(tx, self._id, job.plugin, job.command, column, tx_config)
        tx.effects.ready += 1
        body = {
            "job_id": self._id,
            "plugin": job.plugin,
            "command": job.command,
            "status": "queued",
            "replay_of": job.id,
        }
        queued = Notice("jobs", "job.queued", body)
        notices.post(tx, queued, self._now, job_id=self._id, plugin=job.plugin)
        failures.acknowledge_job(tx, job, self._actor, self._now)

    def _payload_column(self, job: Job) -> Json:
        if self._payload is None:
            return job.payload
        new = without_nul(self._payload)
        return {**envelope_of(job.payload), "payload": new} if job.command == HANDLE else new


def _check_runnable(tx: Tx, compiled: CompiledConfig, job: Job) -> None:
    """Raise `Refused` for a job whose plugin or step is not configured, or that exceeds a limit."""
    router = compiled.tx_config.router
    lost = job.pipeline and router.lost(job.pipeline, job.step_path, job.plugin, job.command)
    if lost:
        raise Refused(lost)
    gone = compiled.gone(job.plugin) or compiled.absence(job.plugin)
    if gone is not None:
        raise Refused(f"{gone}: job {job.id} belongs to plugin {job.plugin}")
    row = tx.one("context", id=job.entered_context_id or "")
    context = orjson.loads(row[0]) if row else {}
    exceeded = router.exceeded_limit(job.pipeline, job.hops, context)
    if exceeded:
        raise Refused(f"job {job.id} may not run: {exceeded}")


def find_step_job(tx: Tx, job_id: str, step: str) -> str:
    """`job_id` if it is a job of `step`, else the newest job of that step in its graph.

    `step` is a whole path (`wide.0.good`), or the id at its end (`good`).
    """
    rows = job_tree.family(tx, job_id)
    if not rows:
        raise NotFound(f"there is no job {job_id}")
    paths = sorted({str(row["step_path"]) for row in rows if row["step_path"]})
    meant = [step] if step in paths else [path for path in paths if path.endswith(f".{step}")]
    if not meant:
        known = ", ".join(paths) or "none"
        raise NotFound(f"no job of step {step!r} belongs to {job_id}; steps: {known}")
    if len(meant) > 1:
        raise Refused(f"several steps are called {step!r}; use one of: {', '.join(meant)}")
    found = [str(row["id"]) for row in rows if row["step_path"] == meant[0]]
    return job_id if job_id in found else found[-1]


def load_job(tx: Tx, job_id: str) -> Job:
    """The job; `NotFound` also if it was pruned and only its log remains."""
    job = read.load_job(tx, job_id)
    if job is None:
        logged = tx.all("job_attempts", id=job_id)
        pruned = (
            " in the queue; it is past its retention, and only its log remains" if logged else ""
        )
        raise NotFound(f"there is no job {job_id}{pruned}")
    return job
