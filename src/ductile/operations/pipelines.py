"""Start a pipeline by name; cancel a run, or retry it from its failed steps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids
from ductile.core.flow.limits import OnFull
from ductile.core.jobs.limits import dedupe_key_flaw
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.core.jobs.trace import TraceContext
from ductile.core.pipelines.intents import SpawnJob, StartPipeline
from ductile.core.pipelines.pipeline import Pipeline
from ductile.core.pipelines.router import Router
from ductile.core.values.suggest import list_or_suggest
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused, UsageError
from ductile.model import Event, JobStatus, Json, SubmittedBy
from ductile.operations import jobs
from ductile.store.engines.api import Tx
from ductile.store.jobs import close, runs, spawn
from ductile.store.jobs.spawn import SpawnPoint


@dataclass(frozen=True, slots=True)
class StartedPipeline:
    """A pipeline instance and its first jobs."""

    instance_id: str
    job_ids: tuple[str, ...]
    existing_job_id: str | None = None
    """Set if the first step was deduplicated: the instance ended as `skipped`."""
    skipped: str | None = None
    """Why the run ended at once, because its pipeline has a limit (`on_full: skip`)."""


class PipelineStart:
    """The transaction that starts a pipeline by name."""

    def __init__(
        self,
        gateway: Services,
        name: str,
        payload: Json,
        submitted_by: SubmittedBy,
        dedupe_key: str | None = None,
        dedupe_ttl: float | None = None,
        priority: float = 0.0,
        *,
        trace: TraceContext | None = None,
    ) -> None:
        self._trace = trace
        self._tx_config = gateway.compiled.tx_config
        self.pipeline = find_pipeline(self._tx_config.router, name)
        if flaw := dedupe_key_flaw(dedupe_key):
            raise UsageError(f"dedupe_key {flaw}")
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()
        event = Event(
            self.pipeline.on or f"{submitted_by}.trigger",
            payload,
            without_nul(dedupe_key),
            submitted_by.value,
            self._now,
            gateway.entropy.uuid(),
        )
        intent = self._tx_config.router.start(
            name, event, submitted_by=submitted_by, dedupe_ttl=dedupe_ttl, priority=priority
        )
        assert isinstance(intent, StartPipeline)
        self._intent = intent

    def __call__(self, tx: Tx) -> StartedPipeline:
        ids = Ids(self._base_id)
        spawned = close.write_intents(
            tx, (self._intent,), SpawnPoint(trace=self._trace), self._tx_config, ids, self._now
        )
        existing = spawned.skipped[0][1] if spawned.skipped else None
        run_id = spawned.scope_ids[0]
        skipped = None if existing else self._find_skip(tx, run_id)
        return StartedPipeline(run_id, tuple(spawned.job_ids), existing, skipped)

    def _find_skip(self, tx: Tx, run_id: str) -> str | None:
        limit = self._tx_config.run_limits.get(self.pipeline.name)
        run = runs.find_run(tx, run_id) if limit and limit.on_full is OnFull.SKIP else None
        return run["reason"] if run is not None and run["status"] == "skipped" else None

    def existing(self, tx: Tx) -> str | None:
        """The job of which a first job would be a duplicate; nothing is written."""
        for child in self._intent.children:
            if isinstance(child, SpawnJob):
                found = spawn.find_existing(tx, child, self._tx_config, self._now)
                if found is not None:
                    return found.job_id
        return None


def find_pipeline(router: Router, name: str) -> Pipeline:
    pipeline = router.pipelines.get(name)
    if pipeline is None:
        known = list_or_suggest(name, sorted(router.pipelines))
        raise NotFound(f"there is no pipeline {name!r}; {known}")
    return pipeline


MAX_RUN_JOBS = 2000
CANCEL_ROUNDS = 20
"""A cancelled step may lead to others, as the join of a split with `join: always` does."""
UNFINISHED = (JobStatus.QUEUED, JobStatus.RUNNING)


def cancel_run(gateway: Services, run_id: str, *, dry: bool = False) -> list[str]:
    """End every queued and running job of a run, and return their ids."""
    cancelled: dict[str, None] = {}
    for _ in range(1 if dry else CANCEL_ROUNDS):
        found = gateway.ledger.read(lambda tx: _jobs_of(tx, run_id, UNFINISHED))
        if not found:
            break
        cancelled.update(dict.fromkeys(found))
        if not dry:
            _cancel_jobs(gateway, found)
            _wait_for_end(gateway, run_id, found)
    if not cancelled:
        raise Refused(f"pipeline run {run_id} has no queued or running job")
    return list(cancelled)


def _cancel_jobs(gateway: Services, found: list[str]) -> None:
    ended = jobs.end_queued(gateway, found)
    cancellation = jobs.JobCancellation(gateway)
    running = [job_id for job_id in found if job_id not in ended]
    cancellation.request_remote(running)
    for job_id in running:
        with contextlib.suppress(Refused):  # It has ended meanwhile; the next round looks again.
            cancellation(job_id)


def _wait_for_end(gateway: Services, run_id: str, found: list[str]) -> None:
    """Wait until the cancelled jobs have ended: only then do the steps that follow exist."""
    deadline = gateway.clock.monotonic() + jobs.REMOTE_TIMEOUT
    while gateway.clock.monotonic() < deadline:
        if set(found).isdisjoint(gateway.ledger.read(lambda tx: _jobs_of(tx, run_id, UNFINISHED))):
            return
        gateway.clock.wait(threading.Event(), jobs.REMOTE_POLL)


class RunRetry:
    """The transaction that queues the failed jobs of a run again."""

    def __init__(self, gateway: Services, run_id: str, *, dry: bool = False) -> None:
        self._gateway, self._run_id, self._dry = gateway, run_id, dry

    def __call__(self, tx: Tx) -> RetriedRun:
        found = _jobs_of(tx, self._run_id, ENDED_BADLY)
        if not found:
            raise Refused(f"pipeline run {self._run_id} has no failed job")
        for job_id in found:
            jobs.JobRetry(self._gateway, job_id, dry=self._dry)(tx)
        return RetriedRun(self._run_id, tuple(found))


@dataclass(frozen=True, slots=True)
class RetriedRun:
    """A run whose failed jobs were queued again, or with `dry` would be."""

    instance_id: str
    job_ids: tuple[str, ...]


def _jobs_of(tx: Tx, run_id: str, statuses: Collection[JobStatus]) -> list[str]:
    if runs.find_run(tx, run_id) is None:
        raise NotFound(f"there is no pipeline run {run_id}")
    return runs.list_job_ids(tx, run_id, statuses, MAX_RUN_JOBS)
