"""Jobs as producers make them and operators read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import orjson

from ductile.clock import from_text, moment_of, to_text
from ductile.core.jobs.limits import document
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.model import Job, JobStatus, Json, NewJob, Notice
from ductile.record import dataclass
from ductile.store import notices
from ductile.store.engines.api import Drop, Ledger, Row, Tx
from ductile.store.engines.queries import JOB
from ductile.store.tx_config import TxConfig

_PAYLOAD, _STATUS, _CREATED_AT = map(JOB.index, ("payload", "status", "created_at"))
_MOMENTS = tuple(map(JOB.index, ("started_at", "completed_at", "next_retry_at")))


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The answer to a producer: the new job, or the one that made it needless."""

    job_id: str
    status: JobStatus
    deduplicated: bool = False


def enqueue(tx: Tx, new: NewJob, tx_config: TxConfig, *, id: str, now: datetime) -> Enqueued:
    """Add a job to the queue, unless its dedupe key says that it is needless (002 §3.6)."""
    if new.dedupe_key is not None:
        new = replace(new, dedupe_key=without_nul(new.dedupe_key))
        existing = duplicate(tx, new, now, tx_config.dedupe_ttl)
        if existing is not None:
            return existing
    tx.run(
        "insert_job",
        id=id,
        plugin=new.plugin,
        command=new.command,
        payload=_encoded(new.payload),
        max_attempts=tx_config.max_attempts(new.plugin, new.command),
        submitted_by=new.submitted_by.value,
        dedupe_key=new.dedupe_key,
        dedupe_ttl=new.dedupe_ttl,
        now=to_text(now),
        snapshot_id=tx_config.snapshot_id,
    )
    tx.effects.ready += 1
    told = {"job_id": id, "plugin": new.plugin, "command": new.command, "status": "queued"}
    notices.post(tx, Notice("jobs", "job.queued", told), now, job_id=id, plugin=new.plugin)
    return Enqueued(id, JobStatus.QUEUED)


def _encoded(payload: Json) -> str:
    encoded = orjson.dumps(payload)
    # Only a document that shows it can hold U+0000; the others are spared the walk.
    if b"\\u0000" in encoded:
        encoded = orjson.dumps(without_nul(payload))
    return encoded.decode()


def duplicate(
    tx: Tx,
    new: NewJob,
    now: datetime,
    service_ttl: float,
    step: tuple[str, str] | None = None,
) -> Enqueued | None:
    """The job that makes this one needless, the drop recorded; None where there is none.

    With a `step` (its pipeline and path) only a job of that step does.
    """
    if new.dedupe_key is None:
        return None
    # Two producers with one key decide one after the other, on any engine.
    tx.hold("dedupe", f"{new.plugin}\x1f{new.command}\x1f{new.dedupe_key}", wait=True)
    found = existing(tx, new, now, service_ttl, step)
    if found is None:
        return None
    target = _target(new)
    drop = Drop(**target, submitted_by=new.submitted_by.value, existing_job_id=found.job_id)
    tx.run("insert_dedupe_drop", now=to_text(now), **drop._asdict())
    tx.effects.drops.append(drop)
    told = {**target, "existing_job_id": found.job_id}
    notices.post(tx, Notice("jobs", "job.deduplicated", told), now, job_id=found.job_id)
    return found


def existing(
    tx: Tx,
    new: NewJob,
    now: datetime,
    service_ttl: float,
    step: tuple[str, str] | None = None,
) -> Enqueued | None:
    """As `duplicate`, and nothing is written."""
    if new.dedupe_key is None:
        return None
    ttl = service_ttl if new.dedupe_ttl is None else new.dedupe_ttl
    pipeline, path = step or (None, None)
    asked = {**_target(new), "pipeline": pipeline, "step_path": path}
    row = None
    if new.dedupe_ttl is not None:
        row = tx.one("outstanding_duplicate", **asked)
    if row is None:
        row = _succeeded(tx, now - timedelta(seconds=ttl), asked)
    return None if row is None else Enqueued(row[0], JobStatus(row[1]), deduplicated=True)


def _target(new: NewJob) -> dict[str, str]:
    assert new.dedupe_key is not None
    key = without_nul(new.dedupe_key)
    return {"dedupe_key": key, "plugin": new.plugin, "command": new.command}


def _succeeded(tx: Tx, since: datetime, asked: Mapping[str, str | None]) -> Row | None:
    """The latest success of the target since then."""
    inside = []
    for row in tx.all("succeeded_duplicates", since=to_text(since), **asked):
        moment = moment_of(row[2])
        if moment is not None and moment >= since:
            inside.append((moment, row))
    return max(inside)[1] if inside else None


def from_row(row: Sequence[Any]) -> Job:
    """A `Job` from the columns that are `@job@` to a query.

    Scripts write rows too: one that cannot be read is a job with a flaw, not an error.
    """
    try:
        return _job(row, orjson.loads(row[_PAYLOAD]) if row[_PAYLOAD] else {})
    except ValueError as error:
        readable = list(row)
        for place in (_CREATED_AT, *_MOMENTS):
            readable[place] = _readable(row[place])
        return replace(_job(readable, {}), flaw=f"its row in job_queue is malformed: {error}")


def _readable(text: str | None) -> str | None:
    try:
        return text and to_text(from_text(text))
    except ValueError:
        return "1970-01-01T00:00:00Z"


def _job(row: Sequence[Any], payload: Any) -> Job:
    """By place and not by name: every claim makes one."""
    columns = list(row)
    columns[_PAYLOAD], columns[_STATUS] = payload, JobStatus(row[_STATUS])
    columns[_CREATED_AT] = from_text(row[_CREATED_AT])
    for place in _MOMENTS:
        columns[place] = _moment(row[place])
    return Job(*columns)


def load(tx: Tx, job_id: str) -> Job | None:
    row = tx.one("load_job", id=job_id)
    return None if row is None else from_row(row)


def _moment(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def get(tx: Tx, job_id: str) -> dict[str, Any] | None:
    """A job with its attempts and changes of state; from the log once the queue forgot it."""
    attempts = tx.dicts("job_attempts", id=job_id)
    rows = tx.dicts("job", id=job_id)
    if not rows and not attempts:
        return None
    job = rows[0] if rows else _from_log(job_id, attempts[-1])
    job["payload"] = _document(job.get("payload"))
    job["result"] = _document(attempts[-1]["result"]) if attempts else None
    for attempt in attempts:
        attempt["result"] = _document(attempt["result"])
        attempt["logs"] = _document(attempt["logs"])
    job["attempts"] = attempts
    job["transitions"] = tx.dicts("job_transitions", id=job_id)
    return job


def _from_log(job_id: str, attempt: dict[str, Any]) -> dict[str, Any]:
    apart = ("job_id", "result", "logs", "stdout")
    job = {key: value for key, value in attempt.items() if key not in apart}
    return {**job, "id": job_id, "pruned": True}


def beginning(tx: Tx, prefix: str, limit: int) -> list[str]:
    """The first ids of jobs that begin so, also of those that only the log still knows."""
    rows = tx.all("ids_beginning", prefix=prefix, beyond=f"{prefix}\U0010ffff", limit=limit)
    return [row[0] for row in rows]


def _document(text: str | None) -> Any:
    return None if text is None else document(text)


def queue_counts(ledger: Ledger) -> tuple[int, int]:
    """How many jobs wait, and how many run."""

    def work(tx: Any) -> tuple[int, int]:
        return tx.one("queue_depth")[0], tx.one("running_count")[0]

    return ledger.read(work)
