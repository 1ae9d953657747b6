"""Writing what routing decided: jobs, scopes and contexts, in the transaction at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

import orjson

from ductile.clock import Ids, to_text
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.core.pipelines.intents import Intent, OpenScope, SendRelay, SpawnJob, StartPipeline
from ductile.core.pipelines.step_io import payload_column
from ductile.model import CORE_PREFIX, Json, NewJob, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.jobs import enqueue
from ductile.store.outbox import relays
from ductile.store.tx_config import TxConfig


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chain goes on: its scope, and the context that its jobs enter with."""

    scope_id: str | None = None
    context_id: str | None = None
    join_of: str | None = None


@dataclass(slots=True)
class Spawned:
    """What was written, and what the caller has to see to: ends, and scopes to look at."""

    job_ids: list[str] = field(default_factory=list)
    scope_ids: list[str] = field(default_factory=list)
    over_limit: list[tuple[str, str]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Instances all of whose first steps were deduplicated: (scope, an existing job)."""
    existing: list[str] = field(default_factory=list)
    """Jobs that made others needless by their dedupe key."""


def write(
    tx: Tx, intents: Sequence[Intent], place: Place, tx_config: TxConfig, ids: Ids, now: datetime
) -> Spawned:
    """All of it; an event that has made a job already makes it no second time."""
    writer = _Writer(tx, tx_config, ids, now)
    for intent in intents:
        writer.write(intent, place)
    return writer.spawned


class _Writer:
    """Writes one thing after another; `spawned` says what it came to."""

    def __init__(self, tx: Tx, tx_config: TxConfig, ids: Ids, now: datetime) -> None:
        self._tx, self._tx_config, self._ids, self._now = tx, tx_config, ids, now
        self.spawned = Spawned()

    def write(self, intent: Intent, place: Place) -> None:
        if isinstance(intent, StartPipeline):
            self._start(intent)
        elif isinstance(intent, OpenScope):
            self._open(intent, place)
        elif isinstance(intent, SendRelay):
            relays.enqueue(self._tx, intent, id=self._ids.next(), now=self._now)
        elif not self._is_needless(intent):
            self._job(intent, place)

    def _start(self, intent: StartPipeline) -> None:
        scope_id, spawned = self._ids.next(), self.spawned
        context(
            self._tx,
            id=scope_id,
            parent_id=None,
            pipeline=intent.pipeline,
            step_id=None,
            accumulated=orjson.dumps(intent.context(scope_id)).decode(),
            now=self._now,
        )
        self._scope(scope_id, Place(None, scope_id), intent.pipeline)
        known = len(spawned.existing)
        # Before any of them is written: none of its own jobs makes another needless.
        children = self._needed(intent.children)
        if intent.children and not children:
            spawned.skipped.append((scope_id, spawned.existing[known]))
        self._children(children, Place(scope_id, scope_id))

    def _needed(self, children: Sequence[SpawnJob | OpenScope]) -> tuple[SpawnJob | OpenScope, ...]:
        """The children without the jobs that are needless, and without splits of such alone."""
        needed: list[SpawnJob | OpenScope] = []
        for child in children:
            if isinstance(child, SpawnJob):
                if not self._is_needless(child):
                    needed.append(child)
                continue
            inner = self._needed(child.children)
            if inner or not child.children:
                needed.append(replace(child, children=inner))
        return tuple(needed)

    def _is_needless(self, intent: SpawnJob) -> bool:
        """Whether its dedupe key says that there is a job in its place."""
        new, step = _dedupable(intent)
        existing = enqueue.duplicate(self._tx, new, self._now, self._tx_config.dedupe_ttl, step)
        if existing is not None:
            self.spawned.existing.append(existing.job_id)
        return existing is not None

    def _open(self, intent: OpenScope, place: Place) -> None:
        scope_id = self._ids.next()
        self._scope(scope_id, place, intent.pipeline, intent)
        self._children(intent.children, Place(scope_id, place.context_id))

    def _children(self, children: Sequence[SpawnJob | OpenScope], place: Place) -> None:
        for child in children:
            if isinstance(child, OpenScope):
                self._open(child, place)
            else:
                self._job(child, place)

    def _scope(self, id: str, around: Place, pipeline: str, split: OpenScope | None = None) -> None:
        self._tx.run(
            "insert_scope",
            id=id,
            parent_id=around.scope_id,
            pipeline=pipeline,
            split=split.split if split else "",
            branch=split.branch if split else "",
            parent_job_id=split.parent_job_id if split else None,
            hops=split.hops if split else 0,
            join_always=int(split.join_always) if split else 0,
            join_step=split.join.path if split else "",
            join_plugin=split.join.plugin if split else "",
            join_command=split.join.command if split else "",
            context_id=around.context_id,
            join_of=around.join_of,
            now=to_text(self._now),
        )
        self.spawned.scope_ids.append(id)

    def _job(self, intent: SpawnJob, place: Place) -> None:
        job_id = self._ids.next()
        column = without_nul(payload_column(intent.command, intent.event))
        added = self._tx.run(
            "insert_routed_job",
            id=job_id,
            plugin=intent.plugin,
            command=intent.command,
            payload=orjson.dumps(column).decode(),
            max_attempts=self._tx_config.max_attempts(intent.plugin, intent.command),
            submitted_by=intent.submitted_by.value,
            dedupe_key=intent.dedupe_key,
            dedupe_ttl=intent.dedupe_ttl,
            now=to_text(self._now),
            parent_job_id=intent.parent_job_id,
            source_event_id=intent.event.event_id,
            snapshot_id=self._tx_config.snapshot_id,
            context_id=place.context_id,
            hops=intent.hops,
            pipeline=intent.pipeline,
            step_path=intent.step_path,
            branch=intent.branch,
            scope_id=place.scope_id if intent.pipeline else None,
            join_of=place.join_of,
            replay_of=None,
        )
        if not added:
            return
        self.spawned.job_ids.append(job_id)
        if intent.dead is not None:
            self.spawned.over_limit.append((job_id, intent.dead))
        else:
            self._tx.effects.ready += 1
        self._tell(job_id, intent)

    def _tell(self, job_id: str, intent: SpawnJob) -> None:
        told = {
            "job_id": job_id,
            "plugin": intent.plugin,
            "command": intent.command,
            "status": "queued",
            "pipeline": intent.pipeline or None,
            "step": intent.step_path or None,
            "parent_job_id": intent.parent_job_id,
        }
        notice = Notice("jobs", "job.queued", told)
        notices.post(self._tx, notice, self._now, job_id=job_id, plugin=intent.plugin)


def existing(
    tx: Tx, intent: SpawnJob, tx_config: TxConfig, now: datetime
) -> enqueue.Enqueued | None:
    """The job that stands in its place already, by its dedupe key; nothing is written."""
    new, step = _dedupable(intent)
    return enqueue.existing(tx, new, now, tx_config.dedupe_ttl, step)


def _dedupable(intent: SpawnJob) -> tuple[NewJob, tuple[str, str] | None]:
    """What a job of its key is compared by, and the step that it must be of."""
    new = NewJob(
        intent.plugin,
        intent.command,
        intent.submitted_by,
        dedupe_key=intent.dedupe_key,
        dedupe_ttl=intent.dedupe_ttl,
    )
    # What a step of the core's own does is told by its place alone.
    own = intent.plugin.startswith(CORE_PREFIX)
    return new, (intent.pipeline, intent.step_path) if own else None


def outside(
    tx: Tx, intents: Sequence[Intent], baggage: Mapping[str, Json], ids: Ids, now: datetime
) -> Place:
    """Where an event from outside enters jobs that stand in no pipeline: with its baggage."""
    if not baggage or not any(isinstance(intent, SpawnJob) for intent in intents):
        return Place()
    context_id = ids.next()
    context(
        tx,
        id=context_id,
        parent_id=None,
        pipeline=None,
        step_id=None,
        accumulated=orjson.dumps(baggage).decode(),
        now=now,
    )
    return Place(context_id=context_id)


def context(
    tx: Tx,
    *,
    id: str,
    parent_id: str | None,
    pipeline: str | None,
    step_id: str | None,
    accumulated: str,
    now: datetime,
) -> None:
    tx.run(
        "insert_context",
        id=id,
        parent_id=parent_id,
        pipeline=pipeline,
        step_id=step_id,
        accumulated=accumulated,
        now=to_text(now),
    )
