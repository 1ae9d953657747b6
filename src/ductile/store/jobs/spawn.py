"""Writing the intents of routing: jobs, scopes and contexts, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.jobs.trace import TraceContext, context_of, span_of_run
from ductile.core.pipelines.intents import (
    Intent,
    MatchWaits,
    OpenScope,
    SendRelay,
    SpawnJob,
    StartPipeline,
    Unrouted,
)
from ductile.core.pipelines.step_io import payload_column
from ductile.model import CORE_PREFIX, Event, Job, Json, NewJob, Notice
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.flow import debounce, run_limits
from ductile.store.jobs import enqueue, traces
from ductile.store.outbox import relays
from ductile.store.tx_config import TxConfig


@dataclass(frozen=True, slots=True)
class SpawnPoint:
    """Where a chain of jobs continues: its scope, and the context that its jobs enter with."""

    scope_id: str | None = None
    context_id: str | None = None
    join_of: str | None = None
    trace: TraceContext | None = None
    """The trace of the request or the run around the jobs; default: that of their parent."""


@dataclass(slots=True)
class Spawned:
    """What was written, and which of it the caller has to end or to check."""

    job_ids: list[str] = field(default_factory=list)
    scope_ids: list[str] = field(default_factory=list)
    over_limit: list[tuple[str, str]] = field(default_factory=list)
    """Jobs that must end at once: (job, reason)."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    """Instances all of whose first jobs were deduplicated: (scope, an existing job)."""
    existing: list[str] = field(default_factory=list)
    """Jobs that replace others by their dedupe key."""
    held: list[str] = field(default_factory=list)
    """Runs of pipelines with a limit, which have to take their turn."""
    superseded: list[tuple[str, str]] = field(default_factory=list)
    """Queued jobs that a newer event of their series replaces: (job, newer job)."""
    awaited: list[Event] = field(default_factory=list)
    """Events that may end waits."""


def insert_intents(
    tx: Tx,
    intents: Sequence[Intent],
    point: SpawnPoint,
    tx_config: TxConfig,
    ids: Ids,
    now: datetime,
    *,
    is_new_event: bool = False,
) -> Spawned:
    """Write all intents; a job that an event has already created is not created again.

    Of a new event no job exists yet: they are written together with other rows.
    """
    writer = _IntentWriter(tx, tx_config, ids, now, is_new_event=is_new_event)
    for intent in intents:
        writer.write(intent, point)
    return writer.spawned


def post_unrouted(tx: Tx, job: Job, unrouted: Iterable[Unrouted], now: datetime) -> None:
    """Post a notice for each event of the job that no route or step names."""
    for item in unrouted:
        fields = {"event_id": item.event_id, "pipeline": item.pipeline, "reason": item.reason}
        notices.post(tx, Notice("events", "event.unrouted", fields), now, job_id=job.id)


class _IntentWriter:
    """Writes one intent after the other, and collects the results in `spawned`."""

    def __init__(
        self, tx: Tx, tx_config: TxConfig, ids: Ids, now: datetime, *, is_new_event: bool
    ) -> None:
        self._tx, self._tx_config, self._ids, self._now = tx, tx_config, ids, now
        self._is_new_event = is_new_event
        self._written: set[tuple[str, ...]] = set()
        """The identities of the jobs of a new event."""
        self.spawned = Spawned()

    def write(self, intent: Intent, point: SpawnPoint) -> None:
        if isinstance(intent, StartPipeline):
            self._start_pipeline(intent, point.trace)
        elif isinstance(intent, OpenScope):
            self._open_scope(intent, point)
        elif isinstance(intent, SendRelay):
            relays.enqueue_relay(self._tx, intent, id=self._ids.next(), now=self._now)
        elif isinstance(intent, MatchWaits):
            self.spawned.awaited.append(intent.event)
        elif not self._has_duplicate(intent):
            self._insert_job(intent, point)

    def _start_pipeline(self, intent: StartPipeline, trace: TraceContext | None) -> None:
        scope_id, spawned = self._ids.next(), self.spawned
        context_id = scope_id if intent.has_context else None
        if context_id is not None:
            insert_context(
                self._tx,
                id=context_id,
                parent_id=None,
                pipeline=intent.pipeline,
                step_id=None,
                accumulated=orjson.dumps(intent.context(scope_id)).decode(),
                now=self._now,
            )
        self._insert_scope(scope_id, SpawnPoint(None, context_id), intent.pipeline)
        self._hold_run(scope_id, intent)
        trace = self._trace_run(scope_id, intent, trace)
        known = len(spawned.existing)
        # Before any of them is written, so that an instance's own jobs do not replace each other.
        children = self._without_duplicates(intent.children)
        if intent.children and not children:
            spawned.skipped.append((scope_id, spawned.existing[known]))
        self._write_children(children, SpawnPoint(scope_id, context_id, trace=trace))

    def _hold_run(self, scope_id: str, intent: StartPipeline) -> None:
        """Let a run of a pipeline with a limit wait for its turn."""
        limit = self._tx_config.run_limits.get(intent.pipeline)
        first = _first_job(intent.children) if limit is not None else None
        if limit is None or first is None:
            return
        key = "" if limit.key is None else limit.key.render(first.event.payload)
        if first.series is not None:
            run_limits.hold_run(self._tx, scope_id, key, None)
            return
        priority = max(first.priority, self._tx_config.priority(first.plugin, intent.pipeline))
        run_limits.hold_run(self._tx, scope_id, key, self._now - timedelta(seconds=priority))
        self.spawned.held.append(scope_id)

    def _trace_run(
        self, scope_id: str, intent: StartPipeline, trace: TraceContext | None
    ) -> TraceContext | None:
        """Store the trace of a run; returns the one of its first jobs."""
        first = _first_job(intent.children) if self._tx_config.traced else None
        if first is None:
            return None
        trace = trace or self._find_trace(first)
        traces.set_run_trace(self._tx, scope_id, trace)
        return trace.below(span_of_run(scope_id))

    def _find_trace(self, intent: SpawnJob) -> TraceContext:
        if intent.parent_job_id is not None:
            return traces.context_of_parent(self._tx, intent.parent_job_id)
        return context_of(None, "", intent.event.event_id)

    def _without_duplicates(
        self, children: Sequence[SpawnJob | OpenScope]
    ) -> tuple[SpawnJob | OpenScope, ...]:
        """The children without duplicate jobs, and without splits that consist of such only."""
        kept: list[SpawnJob | OpenScope] = []
        for child in children:
            if isinstance(child, SpawnJob):
                if not self._has_duplicate(child):
                    kept.append(child)
                continue
            inner = self._without_duplicates(child.children)
            if inner or not child.children:
                kept.append(replace(child, children=inner))
        return tuple(kept)

    def _has_duplicate(self, intent: SpawnJob) -> bool:
        """Whether an existing job replaces this one by its dedupe key; recorded if so."""
        if intent.dedupe_key is None:
            return False
        new, step = _dedupe_target(intent)
        ttl = self._tx_config.dedupe_ttl
        existing = enqueue.drop_duplicate(self._tx, new, self._now, ttl, step)
        if existing is not None:
            self.spawned.existing.append(existing.job_id)
            self._post_drop(intent, existing.job_id)
        return existing is not None

    def _post_drop(self, intent: SpawnJob, existing_job_id: str) -> None:
        """Report the drop to the job whose event was dropped; an outside event has none."""
        if intent.parent_job_id is None:
            return
        fields = {
            "event_id": intent.event.event_id,
            "event_type": intent.event.type,
            "plugin": intent.plugin,
            "command": intent.command,
            "pipeline": intent.pipeline or None,
            "dedupe_key": intent.dedupe_key,
            "existing_job_id": existing_job_id,
        }
        notice = Notice("events", "event.deduplicated", fields)
        notices.post(self._tx, notice, self._now, job_id=intent.parent_job_id)

    def _open_scope(self, intent: OpenScope, point: SpawnPoint) -> None:
        scope_id = self._ids.next()
        self._insert_scope(scope_id, point, intent.pipeline, intent)
        inner = SpawnPoint(scope_id, point.context_id, trace=point.trace)
        self._write_children(intent.children, inner)

    def _write_children(self, children: Sequence[SpawnJob | OpenScope], point: SpawnPoint) -> None:
        for child in children:
            if isinstance(child, OpenScope):
                self._open_scope(child, point)
            else:
                self._insert_job(child, point)

    def _insert_scope(
        self, id: str, around: SpawnPoint, pipeline: str, split: OpenScope | None = None
    ) -> None:
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

    def _insert_job(self, intent: SpawnJob, point: SpawnPoint) -> None:
        job_id, config = self._ids.next(), self._tx_config
        column = payload_column(intent.command, intent.event)
        trace = point.trace or self._find_trace(intent) if config.traced else None
        values = {
            "id": job_id,
            "plugin": intent.plugin,
            "command": intent.command,
            "payload": enqueue.encode_payload(column),
            "max_attempts": config.max_attempts(intent.plugin, intent.command),
            "submitted_by": intent.submitted_by.value,
            "dedupe_key": intent.dedupe_key,
            "dedupe_ttl": intent.dedupe_ttl,
            "now": to_text(self._now),
            "parent_job_id": intent.parent_job_id,
            "source_event_id": intent.event.event_id,
            "snapshot_id": config.snapshot_id,
            "context_id": point.context_id,
            "hops": intent.hops,
            "pipeline": intent.pipeline,
            "step_path": intent.step_path,
            "branch": intent.branch,
            "scope_id": point.scope_id if intent.pipeline else None,
            "join_of": point.join_of,
            "replay_of": None,
            "trace": None if trace is None else trace.to_column(),
        }
        if not self._insert_row(intent, values):
            return
        enqueue.set_limit_key(self._tx, job_id, intent.plugin, intent.command, column, config)
        priority = max(intent.priority, config.priority(intent.plugin, intent.pipeline))
        enqueue.set_place(self._tx, job_id, priority, self._now)
        self.spawned.job_ids.append(job_id)
        if intent.dead is not None:
            self.spawned.over_limit.append((job_id, intent.dead))
        elif intent.series is not None:
            older = debounce.enter_series(self._tx, job_id, intent.series, self._now)
            if older is not None:
                self.spawned.superseded.append((older, job_id))
        else:
            self._tx.effects.ready += 1
        self._post_notice(job_id, intent)

    def _insert_row(self, intent: SpawnJob, values: Mapping[str, object]) -> bool:
        """Write the row of a job; False if its event already has the job."""
        if not self._is_new_event:
            return bool(self._tx.run("insert_routed_job", **values))
        if intent.identity in self._written:
            return False
        self._written.add(intent.identity)
        self._tx.append("insert_job_of_new_event", **values)
        return True

    def _post_notice(self, job_id: str, intent: SpawnJob) -> None:
        fields = {
            "job_id": job_id,
            "plugin": intent.plugin,
            "command": intent.command,
            "status": "queued",
            "pipeline": intent.pipeline or None,
            "step": intent.step_path or None,
            "parent_job_id": intent.parent_job_id,
        }
        notice = Notice("jobs", "job.queued", fields)
        notices.post(self._tx, notice, self._now, job_id=job_id, plugin=intent.plugin)


def _first_job(children: Sequence[SpawnJob | OpenScope]) -> SpawnJob | None:
    for child in children:
        found = child if isinstance(child, SpawnJob) else _first_job(child.children)
        if found is not None:
            return found
    return None


def find_existing(
    tx: Tx, intent: SpawnJob, tx_config: TxConfig, now: datetime
) -> enqueue.Enqueued | None:
    """The existing job that would replace this one by its dedupe key; nothing is written."""
    new, step = _dedupe_target(intent)
    return enqueue.find_duplicate(tx, new, now, tx_config.dedupe_ttl, step)


def _dedupe_target(intent: SpawnJob) -> tuple[NewJob, tuple[str, str] | None]:
    """What its duplicates are compared by, and the step that they must belong to."""
    new = NewJob(
        intent.plugin,
        intent.command,
        intent.submitted_by,
        dedupe_key=intent.dedupe_key,
        dedupe_ttl=intent.dedupe_ttl,
    )
    # All switches share one plugin name; only their steps differ.
    own = intent.plugin.startswith(CORE_PREFIX)
    return new, (intent.pipeline, intent.step_path) if own else None


def insert_entry_context(
    tx: Tx, intents: Sequence[Intent], baggage: Mapping[str, Json], ids: Ids, now: datetime
) -> SpawnPoint:
    """Write an external event's baggage for its jobs outside of pipelines, if there are any."""
    if not baggage or not any(isinstance(intent, SpawnJob) for intent in intents):
        return SpawnPoint()
    context_id = ids.next()
    tx.append(
        "insert_new_context",
        id=context_id,
        parent_id=None,
        pipeline=None,
        step_id=None,
        accumulated=orjson.dumps(baggage).decode(),
        now=to_text(now),
    )
    return SpawnPoint(context_id=context_id)


def insert_own_context(tx: Tx, job: Job, accumulated: str | None, now: datetime) -> str | None:
    """The id of the context of what the job starts: its own, if its step has one."""
    if accumulated is None:
        return job.entered_context_id
    insert_context(
        tx,
        id=job.id,
        parent_id=job.entered_context_id,
        pipeline=job.pipeline,
        step_id=job.step_path,
        accumulated=accumulated,
        now=now,
    )
    tx.run("set_context", id=job.id, context_id=job.id)
    return job.id


def insert_context(
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
