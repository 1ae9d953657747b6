"""The first job of a plugin with limits that may start.

A claim reads the queue in its order. Jobs whose limit key is full or closed are set aside: they
leave the index of the queue's order and are found by their limit key from then on, so that no claim
reads them again. Nothing has to release them: the first job set aside of each limit key and
pipeline is a candidate of every claim, and the running jobs are counted each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.flow.limits import Concurrency, OnFull, parse_limit_key
from ductile.model import Cancellation, JobStatus
from ductile.store.engines.api import Tx
from ductile.store.flow.gate import Gate
from ductile.store.jobs import cancel_requests, close, read
from ductile.store.tx_config import TxConfig

BATCHES = (8, 64, 512, 512)
"""How many jobs a claim reads at once, and sets aside if they are held: few, because the first is
usually free, and then more. A larger backlog that is met for the first time is set aside in
several claims."""
MOST_SUPERSEDED = 1000
MOST_SKIPPED = 100
"""How many jobs of a key that were set aside before one claim skips."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    seq: int
    """Its place in the queue: its sequence number, or that of the job that it follows."""
    id: str
    limit_key: str
    command: str


def find_startable(
    tx: Tx,
    plugin: str,
    gate: Gate,
    conditions: Mapping[str, object],
    paused: Collection[str],
    tx_config: TxConfig,
) -> QueuedJob | None:
    """The oldest job of the plugin that may start; held jobs before it are set aside.

    `conditions` are the values of the fragment `may_run`; `paused` are the paused pipelines.
    """
    candidates = [_first_in_order(tx, gate, conditions, tx_config)]
    for limit_key, pipeline in tx.all("set_aside_limit_keys", plugin=plugin):
        if pipeline in paused:
            continue
        values = {"limit_key": limit_key, "pipeline": pipeline, **conditions}
        # The command is not known yet; `init` jobs are never set aside.
        if gate.is_full(limit_key, ""):
            _end_set_aside(tx, gate, values, tx_config)
        elif not _is_held(tx, gate, limit_key, ""):
            row = tx.one("first_set_aside", limit=1, **values)
            candidates.append(None if row is None else QueuedJob(*row))
    return min((job for job in candidates if job is not None), key=_position, default=None)


def _position(job: QueuedJob) -> int:
    return job.seq


def _is_held(tx: Tx, gate: Gate, limit_key: str, command: str) -> bool:
    if gate.is_full(limit_key, command):
        return True
    opens_at = gate.opens_at(limit_key, command)
    if opens_at is None:
        return False
    tx.effects.add_opening(opens_at)
    return True


def _first_in_order(
    tx: Tx, gate: Gate, conditions: Mapping[str, object], tx_config: TxConfig
) -> QueuedJob | None:
    for size in BATCHES:
        jobs = [
            QueuedJob(*row) for row in tx.all("first_ready_limit_keys", limit=size, **conditions)
        ]
        place = 0
        while place < len(jobs) and _is_held(tx, gate, jobs[place].limit_key, jobs[place].command):
            place += 1
        _set_aside(tx, jobs[:place], gate, conditions, tx_config)
        if place < len(jobs):
            return jobs[place]
        if len(jobs) < size:
            return None
    # The rest of the backlog is read by the next claim, which must not wait for an event.
    tx.effects.ready += 1
    return None


def _set_aside(
    tx: Tx,
    jobs: Sequence[QueuedJob],
    gate: Gate,
    conditions: Mapping[str, object],
    tx_config: TxConfig,
) -> None:
    """Take held jobs out of the queue's order, and do what `on_full` says."""
    if not jobs:
        return
    tx.run("set_jobs_aside", ids=orjson.dumps([job.id for job in jobs]).decode())
    concurrency = gate.limits.concurrency
    if concurrency is None or concurrency.on_full is OnFull.QUEUE:
        return
    full = [job for job in jobs if gate.is_full(job.limit_key, job.command)]
    if concurrency.on_full is OnFull.SKIP:
        _skip(tx, full, gate, concurrency, tx_config)
    else:
        newest = {job.limit_key: job for job in full}
        for job in newest.values():
            _displace_older(tx, job, _list_older(tx, job, conditions), gate, conditions, tx_config)


def _end_set_aside(tx: Tx, gate: Gate, values: Mapping[str, object], tx_config: TxConfig) -> None:
    """Do what `on_full` says for jobs of a full key that were set aside for another reason.

    They have a priority, or a rate held them, or `on_full` was `queue` then.
    """
    concurrency = gate.limits.concurrency
    if concurrency is None or concurrency.on_full is OnFull.QUEUE:
        return
    if concurrency.on_full is OnFull.SKIP:
        rows = tx.all("first_set_aside", limit=MOST_SKIPPED, **values)
        _skip(tx, [QueuedJob(*row) for row in rows], gate, concurrency, tx_config)
        # The rest is ended by the next claim, which must not wait for an event.
        tx.effects.ready += len(rows) == MOST_SKIPPED
    elif (row := tx.one("newest_set_aside", **values)) is not None:
        job = QueuedJob(*row)
        # A job that is alone has displaced the others before, or waits for the running ones.
        if older := _list_older(tx, job, values):
            _displace_older(tx, job, older, gate, values, tx_config)
            tx.effects.ready += len(older) == MOST_SUPERSEDED


def _skip(
    tx: Tx, jobs: Sequence[QueuedJob], gate: Gate, concurrency: Concurrency, tx_config: TxConfig
) -> None:
    for job in jobs:
        key = parse_limit_key(job.limit_key).concurrency_key
        reason = (
            f"{gate.running.get(key, 0)} of {concurrency.limit} jobs with the key {key!r} "
            "are running (concurrency, on_full: skip)"
        )
        _end(tx, job.id, reason, gate.now, tx_config)


def _list_older(tx: Tx, job: QueuedJob, conditions: Mapping[str, object]) -> list[str]:
    """The ids of the queued jobs of the key before this one."""
    rows = tx.all(
        "queued_with_limit_key",
        plugin=conditions["plugin"],
        limit_key=job.limit_key,
        before=job.seq,
        paused=conditions["paused"],
        limit=MOST_SUPERSEDED,
    )
    return [read.parse_job(row).id for row in rows]


def _displace_older(
    tx: Tx,
    job: QueuedJob,
    older: Sequence[str],
    gate: Gate,
    conditions: Mapping[str, object],
    tx_config: TxConfig,
) -> None:
    """Cancel the running jobs of the key, and skip its older queued jobs."""
    key = parse_limit_key(job.limit_key).concurrency_key
    for limit_key, *columns in tx.all("running_with_limit_key", plugin=conditions["plugin"]):
        if parse_limit_key(limit_key).concurrency_key == key:
            running = read.parse_job(columns)
            cancel_requests.request_cancel(tx, running, Cancellation.DISPLACED, gate.now)
    for job_id in older:
        reason = f"superseded by job {job.id} with the same key (concurrency, on_full: cancel)"
        _end(tx, job_id, reason, gate.now, tx_config)


def _end(tx: Tx, job_id: str, reason: str, now: datetime, tx_config: TxConfig) -> None:
    job = read.load_job(tx, job_id)
    if job is None:
        return
    # Ids of what follows from its end. The time is part of them, because an operator may retry
    # the job, and it may end in the same way again.
    seed = hashlib.blake2b(f"{job_id}{to_text(now)}".encode(), digest_size=6).hexdigest()
    ids = Ids(f"{job_id[:-12]}{seed}")
    # The later steps of a run do not follow, so that it must fail. The step can be retried.
    status = JobStatus.SKIPPED if job.scope_id is None else JobStatus.DEAD
    close.end_queued(tx, job, status, reason, now, tx_config, ids)
