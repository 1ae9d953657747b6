"""What an operator does to jobs and pipelines: start, cancel, retry, replay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from ductile.clock import Ids, to_text
from ductile.core.intent import StartPipeline
from ductile.core.lifecycle import ENDED, RETRIABLE_BY_OPERATOR
from ductile.core.pipeline import Pipeline
from ductile.errors import NotFound, Refused, UsageError
from ductile.model import Cancellation, Event, Job, JobStatus, Json, SubmittedBy
from ductile.runtime.gateway import Gateway
from ductile.store import finish, jobs, requeue
from ductile.store.ledger import Tx
from ductile.store.spawn import Place


@dataclass(frozen=True, slots=True)
class Started:
    """A pipeline's instance, and the jobs it began with."""

    instance_id: str
    job_ids: tuple[str, ...]
    existing_job_id: str | None = None
    """Set where its first step was deduplicated: the instance ended `skipped`."""


class Starting:
    """The transaction that starts a pipeline by name."""

    def __init__(
        self,
        gateway: Gateway,
        name: str,
        payload: Json,
        submitted_by: SubmittedBy,
        dedupe_key: str | None = None,
    ) -> None:
        self.pipeline = find_pipeline(gateway, name)
        self._chart = gateway.blueprint.chart
        self._now, self._base_id = gateway.clock.now(), gateway.entropy.uuid()
        event = Event(
            self.pipeline.on or f"{submitted_by}.trigger",
            payload,
            dedupe_key,
            submitted_by.value,
            self._now,
            gateway.entropy.uuid(),
        )
        intent = self._chart.router.start(name, event, submitted_by=submitted_by)
        assert isinstance(intent, StartPipeline)
        self._intent = intent

    def __call__(self, tx: Tx) -> Started:
        ids = Ids(self._base_id)
        spawned = finish.write_intents(tx, (self._intent,), Place(), self._chart, ids, self._now)
        existing = spawned.skipped[0][1] if spawned.skipped else None
        return Started(spawned.scope_ids[0], tuple(spawned.job_ids), existing)


def find_pipeline(gateway: Gateway, name: str) -> Pipeline:
    pipeline = gateway.blueprint.chart.router.pipelines.get(name)
    if pipeline is None:
        known = ", ".join(sorted(gateway.blueprint.chart.router.pipelines)) or "none"
        raise NotFound(f"there is no pipeline {name!r}; there are: {known}")
    return pipeline


def cancel(gateway: Gateway, job_id: str, reason: str = "cancelled by an operator") -> JobStatus:
    """End a job that waits, or kill the one that runs; the status it had."""
    job = _load(gateway, job_id)
    if job.status is JobStatus.QUEUED:
        chart, now, base_id = gateway.blueprint.chart, gateway.clock.now(), gateway.entropy.uuid()
        done = gateway.ledger.write(
            lambda tx: finish.end_queued(tx, job, JobStatus.DEAD, reason, now, chart, Ids(base_id))
        )
        if done:
            return job.status
        job = _load(gateway, job_id)
    if job.status is JobStatus.RUNNING and gateway.cancel_running(job_id, Cancellation.OPERATOR):
        return job.status
    raise Refused(f"job {job_id} is {job.status}; only what waits or runs can be cancelled")


def retry(gateway: Gateway, job_id: str) -> Job:
    """Queue a failed or dead job again, with the plugin's number of attempts."""
    job = _load(gateway, job_id)
    if job.status not in RETRIABLE_BY_OPERATOR:
        raise Refused(f"job {job_id} is {job.status}; only failed and dead jobs can be retried")
    attempts, now = gateway.blueprint.chart.max_attempts(job.plugin), gateway.clock.now()
    if not gateway.ledger.write(lambda tx: requeue.retry(tx, job, attempts, now)):
        raise Refused(f"job {job_id} has changed meanwhile")
    return _load(gateway, job_id)


def replay(gateway: Gateway, job_id: str) -> str:
    """A new job from an ended one's payload and context (003 §6.1); the new job's id."""
    job = _load(gateway, job_id)
    if job.status not in ENDED:
        raise Refused(f"job {job_id} is {job.status}; it can be replayed once it has ended")
    if job.plugin not in gateway.blueprint.plans and not job.pipeline:
        raise UsageError(f"plugin {job.plugin} is not loaded")
    now, id, event_id = gateway.clock.now(), gateway.entropy.uuid(), gateway.entropy.uuid()
    chart = gateway.blueprint.chart

    def work(tx: Tx) -> None:
        tx.run(
            "insert_routed_job",
            id=id,
            plugin=job.plugin,
            command=job.command,
            payload=orjson.dumps(job.payload).decode(),
            max_attempts=chart.max_attempts(job.plugin),
            submitted_by=SubmittedBy.CLI.value,
            dedupe_key=None,
            now=to_text(now),
            parent_job_id=job.parent_job_id,
            source_event_id=event_id,
            snapshot_id=chart.snapshot_id,
            context_id=job.entered_context_id,
            hops=job.hops,
            pipeline=job.pipeline,
            step_path=job.step_path,
            branch="",
            scope_id=None,
            join_of=None,
            replay_of=job.id,
        )
        tx.effects.ready += 1

    gateway.ledger.write(work)
    return id


def find_step(gateway: Gateway, job_id: str, step: str) -> str:
    """The newest job of `step` in the graph that `job_id` belongs to."""
    rows: list[dict[str, Any]] = gateway.ledger.read(
        lambda tx: tx.dicts("lineage", id=job_id, limit=10_000)
    )
    found = [row["id"] for row in rows if row["step_path"] == step]
    if not found:
        known = ", ".join(sorted({row["step_path"] for row in rows if row["step_path"]}))
        raise NotFound(f"no job of step {step!r} belongs to {job_id}; steps: {known or 'none'}")
    return str(found[-1])


def _load(gateway: Gateway, job_id: str) -> Job:
    job = gateway.ledger.read(lambda tx: jobs.load(tx, job_id))
    if job is None:
        raise NotFound(f"there is no job {job_id}")
    return job
