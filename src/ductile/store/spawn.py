"""Writing what routing decided: jobs, scopes and contexts, in the transaction at hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime

import orjson

from ductile.clock import Ids, to_text
from ductile.core.entering import payload_column
from ductile.core.intent import Intent, OpenScope, SendRelay, SpawnJob, StartPipeline
from ductile.core.protocol import without_nul
from ductile.model import CORE_PREFIX, Json, NewJob, Notice
from ductile.record import dataclass
from ductile.store import jobs, notices, relays
from ductile.store.chart import Chart
from ductile.store.ledger import Tx


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
    tx: Tx, intents: Sequence[Intent], place: Place, chart: Chart, ids: Ids, now: datetime
) -> Spawned:
    """All of it; an event that has made a job already makes it no second time."""
    spawned = Spawned()
    for intent in intents:
        if isinstance(intent, StartPipeline):
            _start(tx, intent, chart, ids, now, spawned)
        elif isinstance(intent, OpenScope):
            _open(tx, intent, place, chart, ids, now, spawned)
        elif isinstance(intent, SendRelay):
            relays.enqueue(tx, intent, id=ids.next(), now=now)
        elif not _is_needless(tx, intent, chart, now, spawned):
            _job(tx, intent, place, chart, ids, now, spawned)
    return spawned


def _start(
    tx: Tx, intent: StartPipeline, chart: Chart, ids: Ids, now: datetime, spawned: Spawned
) -> None:
    scope_id = ids.next()
    context(
        tx,
        id=scope_id,
        parent_id=None,
        pipeline=intent.pipeline,
        step_id=None,
        accumulated=orjson.dumps(intent.context(scope_id)).decode(),
        now=now,
    )
    _scope(tx, scope_id, Place(None, scope_id), intent.pipeline, now)
    spawned.scope_ids.append(scope_id)
    known = len(spawned.existing)
    # Before any of them is written: none of its own jobs makes another needless.
    children = _needed(tx, intent.children, chart, now, spawned)
    if intent.children and not children:
        spawned.skipped.append((scope_id, spawned.existing[known]))
    _children(tx, children, Place(scope_id, scope_id), chart, ids, now, spawned)


def _needed(
    tx: Tx,
    children: Sequence[SpawnJob | OpenScope],
    chart: Chart,
    now: datetime,
    spawned: Spawned,
) -> tuple[SpawnJob | OpenScope, ...]:
    """The children without the jobs that are needless, and without splits of such alone."""
    needed: list[SpawnJob | OpenScope] = []
    for child in children:
        if isinstance(child, SpawnJob):
            if not _is_needless(tx, child, chart, now, spawned):
                needed.append(child)
            continue
        inner = _needed(tx, child.children, chart, now, spawned)
        if inner or not child.children:
            needed.append(replace(child, children=inner))
    return tuple(needed)


def _open(
    tx: Tx,
    intent: OpenScope,
    place: Place,
    chart: Chart,
    ids: Ids,
    now: datetime,
    spawned: Spawned,
) -> None:
    scope_id = ids.next()
    _scope(tx, scope_id, place, intent.pipeline, now, intent)
    spawned.scope_ids.append(scope_id)
    inner = Place(scope_id, place.context_id)
    _children(tx, intent.children, inner, chart, ids, now, spawned)


def _children(
    tx: Tx,
    children: Sequence[SpawnJob | OpenScope],
    place: Place,
    chart: Chart,
    ids: Ids,
    now: datetime,
    spawned: Spawned,
) -> None:
    for child in children:
        if isinstance(child, OpenScope):
            _open(tx, child, place, chart, ids, now, spawned)
        else:
            _job(tx, child, place, chart, ids, now, spawned)


def _scope(
    tx: Tx,
    id: str,
    around: Place,
    pipeline: str,
    now: datetime,
    split: OpenScope | None = None,
) -> None:
    tx.run(
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
        now=to_text(now),
    )


def _is_needless(tx: Tx, intent: SpawnJob, chart: Chart, now: datetime, spawned: Spawned) -> bool:
    """Whether its dedupe key says that there is a job in its place."""
    new, step = _dedupable(intent)
    existing = jobs.duplicate(tx, new, now, chart.dedupe_ttl, step)
    if existing is not None:
        spawned.existing.append(existing.job_id)
    return existing is not None


def existing(tx: Tx, intent: SpawnJob, chart: Chart, now: datetime) -> jobs.Enqueued | None:
    """The job that stands in its place already, by its dedupe key; nothing is written."""
    new, step = _dedupable(intent)
    return jobs.existing(tx, new, now, chart.dedupe_ttl, step)


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


def _job(
    tx: Tx,
    intent: SpawnJob,
    place: Place,
    chart: Chart,
    ids: Ids,
    now: datetime,
    spawned: Spawned,
) -> None:
    job_id = ids.next()
    in_scope = bool(intent.pipeline)
    column = without_nul(payload_column(intent.command, intent.event))
    added = tx.run(
        "insert_routed_job",
        id=job_id,
        plugin=intent.plugin,
        command=intent.command,
        payload=orjson.dumps(column).decode(),
        max_attempts=chart.max_attempts(intent.plugin, intent.command),
        submitted_by=intent.submitted_by.value,
        dedupe_key=intent.dedupe_key,
        dedupe_ttl=intent.dedupe_ttl,
        now=to_text(now),
        parent_job_id=intent.parent_job_id,
        source_event_id=intent.event.event_id,
        snapshot_id=chart.snapshot_id,
        context_id=place.context_id,
        hops=intent.hops,
        pipeline=intent.pipeline,
        step_path=intent.step_path,
        branch=intent.branch,
        scope_id=place.scope_id if in_scope else None,
        join_of=place.join_of,
        replay_of=None,
    )
    if not added:
        return
    spawned.job_ids.append(job_id)
    if intent.dead is not None:
        spawned.over_limit.append((job_id, intent.dead))
    else:
        tx.effects.ready += 1
    told = {
        "job_id": job_id,
        "plugin": intent.plugin,
        "command": intent.command,
        "status": "queued",
        "pipeline": intent.pipeline or None,
        "step": intent.step_path or None,
        "parent_job_id": intent.parent_job_id,
    }
    notices.post(tx, Notice("jobs", "job.queued", told), now, job_id=job_id, plugin=intent.plugin)


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
