"""Adding jobs to the queue, unless their dedupe key says that another one is enough."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.model import JobStatus, Json, NewJob, Notice
from ductile.store import notices
from ductile.store.engines.api import DedupeDrop, Row, Tx
from ductile.store.tx_config import TxConfig


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to a producer: the new job, or the existing one that replaces it."""

    job_id: str
    status: JobStatus
    deduplicated: bool = False


def enqueue_job(tx: Tx, new: NewJob, tx_config: TxConfig, *, id: str, now: datetime) -> Enqueued:
    """Add a job to the queue, or return the existing job of the same dedupe key."""
    if new.dedupe_key is not None:
        new = replace(new, dedupe_key=without_nul(new.dedupe_key))
        existing = drop_duplicate(tx, new, now, tx_config.dedupe_ttl)
        if existing is not None:
            return existing
    tx.append(
        "insert_job",
        id=id,
        plugin=new.plugin,
        command=new.command,
        payload=encode_payload(new.payload),
        max_attempts=tx_config.max_attempts(new.plugin, new.command),
        submitted_by=new.submitted_by.value,
        submitter=new.submitter,
        dedupe_key=new.dedupe_key,
        dedupe_ttl=new.dedupe_ttl,
        now=to_text(now),
        snapshot_id=tx_config.snapshot_id,
    )
    set_limit_key(tx, id, new.plugin, new.command, new.payload, tx_config)
    if new.trace is not None and tx_config.traced:
        tx.run("set_trace", id=id, trace=new.trace)
    set_place(tx, id, max(new.priority, tx_config.priority(new.plugin)), now)
    tx.effects.ready += 1
    fields = {
        "job_id": id,
        "plugin": new.plugin,
        "command": new.command,
        "status": "queued",
        "submitted_by": new.submitted_by.value,
    }
    notices.post(tx, Notice("jobs", "job.queued", fields), now, job_id=id, plugin=new.plugin)
    return Enqueued(id, JobStatus.QUEUED)


def set_limit_key(
    tx: Tx, id: str, plugin: str, command: str, column: Json, tx_config: TxConfig
) -> None:
    """Store the keys of a new job's limits; most plugins have none, and cost no statement."""
    if limit_key := tx_config.limit_key(plugin, command, column):
        tx.run("set_limit_key", id=id, limit_key=limit_key)


def set_place(tx: Tx, id: str, priority: float, now: datetime) -> None:
    """Give a new job the place in the queue of a job that was enqueued `priority` seconds ago."""
    if priority > 0:
        tx.run("set_place", id=id, since=to_text(now - timedelta(seconds=priority)))


def set_submitter(tx: Tx, job_ids: Iterable[str], submitter: str) -> None:
    """Record the token or local user whose request has created the jobs."""
    ids = list(job_ids)
    if ids:
        tx.run("set_submitter", ids=orjson.dumps(ids).decode(), submitter=submitter)


def encode_payload(payload: Json) -> str:
    """The text of a job's `payload` column, without U+0000."""
    encoded = orjson.dumps(payload)
    # Only a document that contains the escape can hold U+0000; the others need no second pass.
    if b"\\u0000" in encoded:
        encoded = orjson.dumps(without_nul(payload))
    return encoded.decode()


def drop_duplicate(
    tx: Tx,
    new: NewJob,
    now: datetime,
    service_ttl: float,
    step: tuple[str, str] | None = None,
) -> Enqueued | None:
    """As `find_duplicate`, and record that the new job was dropped if there is one."""
    if new.dedupe_key is None:
        return None
    # Two producers with the same key decide one after the other, on both engines.
    tx.hold("dedupe", f"{new.plugin}\x1f{new.command}\x1f{new.dedupe_key}", wait=True)
    found = find_duplicate(tx, new, now, service_ttl, step)
    if found is None:
        return None
    target = _dedupe_target(new)
    drop = DedupeDrop(**target, submitted_by=new.submitted_by.value, existing_job_id=found.job_id)
    tx.run("insert_dedupe_drop", now=to_text(now), **drop._asdict())
    tx.effects.drops.append(drop)
    fields = {**target, "existing_job_id": found.job_id}
    notices.post(tx, Notice("jobs", "job.deduplicated", fields), now, job_id=found.job_id)
    return found


def find_duplicate(
    tx: Tx,
    new: NewJob,
    now: datetime,
    service_ttl: float,
    step: tuple[str, str] | None = None,
) -> Enqueued | None:
    """The job that makes the new one unnecessary by its dedupe key; None if there is none.

    With a `step` (pipeline and step path), only a job of that step counts.
    """
    if new.dedupe_key is None:
        return None
    ttl = service_ttl if new.dedupe_ttl is None else new.dedupe_ttl
    pipeline, path = step or (None, None)
    target = {**_dedupe_target(new), "pipeline": pipeline, "step_path": path}
    row = None
    if new.dedupe_ttl is not None:
        row = tx.one("outstanding_duplicate", **target)
    if row is None:
        row = _last_success(tx, now - timedelta(seconds=ttl), target)
    return None if row is None else Enqueued(row[0], JobStatus(row[1]), deduplicated=True)


def _dedupe_target(new: NewJob) -> dict[str, str]:
    assert new.dedupe_key is not None
    key = without_nul(new.dedupe_key)
    return {"dedupe_key": key, "plugin": new.plugin, "command": new.command}


def _last_success(tx: Tx, since: datetime, target: Mapping[str, str | None]) -> Row | None:
    """The target's latest success at or after `since`."""
    recent = []
    for row in tx.all("succeeded_duplicates", since=to_text(since), **target):
        moment = moment_of(row[2])
        if moment is not None and moment >= since:
            recent.append((moment, row))
    return max(recent)[1] if recent else None
