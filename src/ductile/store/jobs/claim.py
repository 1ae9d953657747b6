"""Claiming the next jobs: first in, first out among those that may run now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime, timedelta
from operator import attrgetter

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.flow.limits import NO_LIMITS, OnFull
from ductile.core.flow.pauses import NO_PAUSES, Pauses
from ductile.core.jobs.commands import INIT
from ductile.core.jobs.trace import TraceContext, context_of
from ductile.model import Job, JobStatus
from ductile.store import nodes, notices
from ductile.store.engines.api import Row, Tx
from ductile.store.flow.gate import Gate, count_start, list_closed_plugins
from ductile.store.flow.limit_keys import find_startable
from ductile.store.flow.pauses import load_pauses, set_held_aside
from ductile.store.jobs import read
from ductile.store.jobs.job_log import log_transition
from ductile.store.tx_config import TxConfig

MAX_SEQ = 2**63 - 1
LOCK_RETRY = timedelta(seconds=0.01)
"""When a plugin is tried again whose limits another node was checking."""


@dataclass(frozen=True, slots=True)
class ClaimPolicy:
    """Which jobs a boot may claim."""

    owner: str
    snapshot_id: str | None = None
    caps: Mapping[str, int] = field(default_factory=dict)
    """Maximum number of running jobs per plugin, over all nodes; absent means no limit."""
    init_only: frozenset[str] = frozenset()
    """Plugins whose `init` has not succeeded yet: only their `init` jobs may run."""
    held: frozenset[str] = frozenset()
    """Plugins that are refused: their jobs stay queued."""
    serial: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Per plugin, the schedules whose runs wait for the run before them (`if_running: queue`)."""
    known: frozenset[str] | None = None
    """The plugins whose jobs may be claimed; None means all."""
    pipelines: Collection[str] = ()
    """The pipelines that this node knows: it claims no steps of others that another node knows."""
    config_hash: str = ""
    """Of the settings that all nodes have in common: with the same, nodes know the same."""
    shared: bool = False
    """Whether other nodes use the same ledger."""
    tx_config: TxConfig = field(default_factory=lambda: TxConfig(dedupe_ttl=0.0))
    """Has the limits per plugin, and what follows from the end of a job that a limit skips."""

    def excludes(self, plugin: str) -> bool:
        """Whether this plugin's jobs must not be claimed."""
        return plugin in self.held or (self.known is not None and plugin not in self.known)

    def may_end_jobs(self, plugin: str) -> bool:
        """Whether a job of this plugin may end although none of them can start."""
        limits = self.tx_config.limits.get(plugin, NO_LIMITS)
        return limits.concurrency is not None and limits.concurrency.on_full is not OnFull.QUEUE

    def first_ready_values(self, plugin: str, pauses: Pauses) -> dict[str, object]:
        """The values of the query for the oldest job of this plugin that may run."""
        serial, held = self.serial.get(plugin), pauses.held_pipelines
        return {
            "plugin": plugin,
            "init_only": int(plugin in self.init_only),
            "ids": orjson.dumps(list(serial)).decode() if serial else "[]",
            "paused": orjson.dumps(list(held)).decode() if held else "[]",
        }


@dataclass(frozen=True, slots=True)
class ClaimedJob:
    job: Job
    state: str
    """The plugin's state, as JSON text."""
    context: str = "{}"
    """The `accumulated_json` of the context that the job entered with."""
    trace: TraceContext | None = None
    """None if tracing is off."""


@dataclass(frozen=True, slots=True)
class _Head:
    """The position of a plugin's oldest job that may run now."""

    seq: int
    plugin: str
    alone: bool
    """Whether each start of this plugin has to be decided separately."""
    room: int | None = None
    """How many more of its jobs may run, if that is limited. Then none is prefetched."""
    job_id: str | None = None
    """The job, if the plugin has limits; otherwise it is found when it is started."""
    limit_key: str = ""
    gate: Gate | None = None


def claim(
    tx: Tx,
    policy: ClaimPolicy,
    now: datetime,
    workers: int = 1,
    prefetch: int = 0,
    ended: Iterable[str] = (),
) -> list[ClaimedJob]:
    """Start the oldest jobs that may run, one per worker. Their attempts count from the commit.

    Up to `prefetch` more are started for workers that are about to be free, as long as the next
    job in the queue is one whose attempt may count before a worker has it. `ended` has the plugin
    of each job whose attempt this transaction has ended: another one may take its place.
    """
    started: list[ClaimedJob] = []
    places = Counter(ended)
    while (free := workers - len(started)) + prefetch > 0:
        batch = _start_next(tx, policy, now, max(0, free), free + prefetch, places)
        if not batch:
            break
        places.subtract(one.job.plugin for one in batch)
        started += batch
    return started


def _start_next(
    tx: Tx, policy: ClaimPolicy, now: datetime, workers: int, limit: int, places: Counter[str]
) -> list[ClaimedJob]:
    """Start the consecutive jobs at the head of the queue; at least one, if one may run."""
    heads, pauses = _list_heads(tx, policy, now, places)
    for place, head in enumerate(heads):
        run: list[tuple[int, str]] = []
        allowed = limit if head.room is None else min(workers, head.room)
        if not head.alone and (allowed > 1 or (allowed and not workers)):
            following = heads[place + 1].seq if place + 1 < len(heads) else MAX_SEQ
            run = _list_run(tx, head.plugin, pauses, following, workers, allowed)
        if run:
            return _start_run(tx, policy, head.plugin, run, now)
        if not run and not workers:
            return []
        if head.job_id is not None:
            started = _start_limited(tx, policy, head, head.job_id, now)
        else:
            # None if other nodes have claimed all jobs of this plugin.
            started = _start_first(tx, policy, head.plugin, pauses, now)
        if started is not None:
            return [started]
    return []


def _list_heads(
    tx: Tx, policy: ClaimPolicy, now: datetime, places: Counter[str]
) -> tuple[list[_Head], Pauses]:
    """The head of each plugin that has a job that may run now, in queue order; and the pauses."""
    rows = tx.all("ready_heads")
    # The rows say whether there is a pause at all, so that a claim without one costs no query.
    pauses = load_pauses(tx, now) if rows and rows[0][4] else NO_PAUSES
    if pauses.system is not None:
        return [], pauses
    if policy.shared and rows and set(rows[0][6:8]) != {policy.config_hash}:
        others = nodes.list_pipelines_of_others(tx, policy.owner)
        pauses = replace(pauses, unknown=frozenset(others.difference(policy.pipelines)))
    closed = list_closed_plugins(tx) if rows and rows[0][5] else frozenset[str]()
    set_aside = {row[0] for row in rows if row[2] is None}
    limited = set_aside | policy.tx_config.limits.keys() | closed
    firsts = {row[0]: row[2] for row in rows if row[2] is not None}
    heads: list[_Head] = []
    for plugin, running, seq, has_key, *_ in rows:
        if policy.excludes(plugin) or plugin in pauses.plugins or (seq and plugin in set_aside):
            continue
        held: int | None = 0
        if pauses.held_pipelines:
            is_free = _hold_plugin(tx, plugin, now)
            held = set_held_aside(tx, plugin, pauses.held_pipelines) if is_free else None
        if held is None:
            continue
        cap = policy.caps.get(plugin)
        own = places[plugin]
        room = None if cap is None else _count_room(tx, plugin, running, cap, own, now)
        if room == 0 and not policy.may_end_jobs(plugin):
            continue
        if held or plugin in limited:
            gate = _open_gate(tx, policy, plugin, now, has_closed=plugin in closed)
            has_set_aside = held > 0 or plugin in set_aside
            first = firsts.get(plugin)
            head = _find_limited(tx, policy, gate, pauses, first, has_set_aside=has_set_aside)
            heads += [] if head is None or room == 0 else [head]
            continue
        is_plain = plugin not in policy.init_only and plugin not in policy.serial
        if is_plain and not has_key:
            heads.append(_Head(seq, plugin, alone=False, room=room))
            continue
        # Its first job may have to wait although a later one may run.
        row = tx.one("first_ready", **policy.first_ready_values(plugin, pauses))
        if row is not None:
            heads.append(_Head(row[0], plugin, alone=True))
    return sorted(heads, key=attrgetter("seq")), pauses


def _hold_plugin(tx: Tx, plugin: str, now: datetime) -> bool:
    """Whether no other node checks the limits of the plugin now; none does until the commit."""
    # Without waiting: the lock is kept until the commit, and two nodes take those of several
    # plugins in different orders.
    if tx.hold("plugin", plugin, wait=False):
        return True
    tx.effects.add_opening(now + LOCK_RETRY)
    return False


def _open_gate(
    tx: Tx, policy: ClaimPolicy, plugin: str, now: datetime, *, has_closed: bool
) -> Gate | None:
    """The limits per key of a plugin, which are checked while no other node claims."""
    if not _hold_plugin(tx, plugin, now):
        return None
    return Gate(tx, plugin, policy.tx_config.limits.get(plugin), now, has_closed=has_closed)


def _find_limited(
    tx: Tx,
    policy: ClaimPolicy,
    gate: Gate | None,
    pauses: Pauses,
    first: int | None,
    *,
    has_set_aside: bool,
) -> _Head | None:
    """The head of a plugin with limits per key; `first` is the position of its oldest ready job."""
    if gate is None:
        return None
    conditions = policy.first_ready_values(gate.plugin, pauses)
    config = policy.tx_config
    job = find_startable(tx, gate, conditions, pauses, config, first, has_set_aside=has_set_aside)
    if job is None:
        return None
    return _Head(
        job.place, gate.plugin, alone=True, job_id=job.id, limit_key=job.limit_key, gate=gate
    )


def _start_limited(
    tx: Tx, policy: ClaimPolicy, head: _Head, job_id: str, now: datetime
) -> ClaimedJob | None:
    started = start_job(tx, policy, job_id, now)
    if started is not None and head.gate is not None and started.job.command != INIT:
        count_start(tx, head.plugin, head.limit_key, head.gate)
    return started


def _list_run(
    tx: Tx, plugin: str, pauses: Pauses, following: int, workers: int, limit: int
) -> list[tuple[int, str]]:
    """The plugin's jobs before position `following` that may be started together.

    A job that has no worker yet must have attempts left: if the gateway dies now, this one counts.
    """
    ids: list[tuple[int, str]] = []
    held = pauses.held_pipelines
    rows = tx.all("consecutive_ready", plugin=plugin, before=following, limit=limit)
    for seq, id, pipeline, has_key, is_last_attempt in rows:
        if has_key or pipeline in held or (is_last_attempt and len(ids) >= workers):
            break
        ids.append((seq, id))
    return ids


def _start_run(
    tx: Tx, policy: ClaimPolicy, plugin: str, run: list[tuple[int, str]], now: datetime
) -> list[ClaimedJob]:
    rows = tx.all(
        "start_consecutive",
        plugin=plugin,
        first=run[0][0],
        last=run[-1][0],
        ids=orjson.dumps([id for _, id in run]).decode(),
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    started = [_record_claim(tx, policy, row, now) for row in rows]
    by_id = {claimed.job.id: claimed for claimed in started}
    return [by_id[id] for _, id in run if id in by_id]


def _start_first(
    tx: Tx, policy: ClaimPolicy, plugin: str, pauses: Pauses, now: datetime
) -> ClaimedJob | None:
    row = tx.one(
        "start_first",
        **policy.first_ready_values(plugin, pauses),
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    return None if row is None else _record_claim(tx, policy, row, now)


def start_job(tx: Tx, policy: ClaimPolicy, job_id: str, now: datetime) -> ClaimedJob | None:
    """Start this job ahead of all others; None if it is no longer queued."""
    row = tx.one(
        "start_job",
        id=job_id,
        owner=policy.owner,
        snapshot_id=policy.snapshot_id,
        now=to_text(now),
    )
    return None if row is None else _record_claim(tx, policy, row, now)


def _count_room(tx: Tx, plugin: str, running: int, cap: int, own: int, now: datetime) -> int:
    """How many more jobs of the plugin may run.

    While another node decides about it, as many as the `own` places that this transaction makes
    free: until its commit the other node counts the jobs that had them, and afterwards those that
    have taken them. For further ones it is tried again soon.
    """
    if running >= cap:
        return 0
    if not _hold_plugin(tx, plugin, now):
        return max(0, min(own, cap - running))
    # A new statement, so that its snapshot is younger than the lock.
    row = tx.one("running_of_plugin", plugin=plugin)
    return 0 if row is None else max(0, cap - row[0])


def _record_claim(tx: Tx, policy: ClaimPolicy, row: Row, now: datetime) -> ClaimedJob:
    *columns, state, context, trace = row
    job = read.parse_job(columns)
    log_transition(tx, job, JobStatus.QUEUED, JobStatus.RUNNING, None, to_text(now))
    notices.post_job(tx, job, "job.started", now, attempt=job.attempt, status="running")
    if not policy.tx_config.traced:
        return ClaimedJob(job, state or "{}", context or "{}")
    event_id = None if job.parent_job_id else job.source_event_id
    traced = context_of(trace, job.id, event_id)
    return ClaimedJob(job, state or "{}", context or "{}", traced)


def has_ready(tx: Tx) -> bool:
    """Whether any job is ready."""
    return tx.one("has_ready") is not None
