"""Reading jobs: one job as a value, one with its whole history, ids, and counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.jobs.limits import document
from ductile.core.jobs.state_machine import ENDED_BADLY
from ductile.model import Job, JobStatus, SubmittedBy
from ductile.store.engines.api import Ledger, Tx
from ductile.store.engines.queries import JOB, NEVER

_PAYLOAD, _STATUS, _CREATED_AT = map(JOB.index, ("payload", "status", "created_at"))
_LATEST, _LAST_SEQ = "~", 2**63 - 1
"""Beyond every time and number of a job."""
ID_END = 2
"""The number of characters at the end of an id by which an index finds it."""
INTERNAL = frozenset(
    {"limit_key", "set_aside", "place", "debounce_series", "debounce_since", "displaced_attempt"}
)
"""Columns that only claims need."""
_MOMENTS = tuple(map(JOB.index, ("started_at", "completed_at", "next_retry_at")))


def load_job(tx: Tx, job_id: str) -> Job | None:
    row = tx.one("load_job", id=job_id)
    return None if row is None else parse_job(row)


def parse_job(row: Sequence[Any]) -> Job:
    """A `Job` from the columns `@job@` of a query.

    Scripts write rows too: a row that cannot be read is a job with a flaw, not an error.
    """
    try:
        return _build_job(row, orjson.loads(row[_PAYLOAD]) if row[_PAYLOAD] else {})
    except ValueError as error:
        readable = list(row)
        for place in (_CREATED_AT, *_MOMENTS):
            readable[place] = _readable_time(row[place])
        flaw = f"its row in job_queue is malformed: {error}"
        return replace(_build_job(readable, {}), flaw=flaw)


def _readable_time(text: str | None) -> str | None:
    try:
        return text and to_text(from_text(text))
    except ValueError:
        return "1970-01-01T00:00:00Z"


def _build_job(row: Sequence[Any], payload: Any) -> Job:
    """By position, not by name, because every claim builds one."""
    columns = list(row)
    columns[_PAYLOAD], columns[_STATUS] = payload, JobStatus(row[_STATUS])
    columns[_CREATED_AT] = from_text(row[_CREATED_AT])
    for place in _MOMENTS:
        columns[place] = _parse_time(row[place])
    return Job(*columns)


def _parse_time(text: str | None) -> datetime | None:
    return None if text is None else from_text(text)


def describe_job(tx: Tx, job_id: str) -> dict[str, Any] | None:
    """A job with its attempts and transitions; from the log if its row in the queue is pruned."""
    attempts = tx.dicts("job_attempts", id=job_id)
    rows = tx.dicts("job", id=job_id)
    if not rows and not attempts:
        return None
    job = rows[0] if rows else _job_of_log(job_id, attempts[-1])
    for internal in INTERNAL:
        job.pop(internal, None)
    job["payload"] = _parse_document(job.get("payload"))
    if job.get("next_retry_at") == NEVER:
        job["next_retry_at"] = None
    job["result"] = _parse_document(attempts[-1]["result"]) if attempts else None
    for attempt in attempts:
        attempt["result"] = _parse_document(attempt["result"])
        attempt["logs"] = _parse_document(attempt["logs"])
    job["attempts"] = attempts
    job["transitions"] = tx.dicts("job_transitions", id=job_id)
    if rows:
        instance = tx.one("instance_of_scope", id=job["scope_id"])
        job["instance_id"], job["instance_status"] = (None, None) if instance is None else instance
        [(job["duplicates_dropped"],)] = tx.all("dropped_duplicates", id=job_id)
    return job


def _job_of_log(job_id: str, attempt: dict[str, Any]) -> dict[str, Any]:
    left_out = ("job_id", "result", "logs", "stdout")
    job = {key: value for key, value in attempt.items() if key not in left_out}
    return {**job, "id": job_id, "pruned": True}


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a list has; a filter that is None is not applied."""

    status: JobStatus | None = None
    plugin: str | None = None
    pipeline: str | None = None
    command: str | None = None
    submitted_by: SubmittedBy | None = None
    since: datetime | None = None
    until: datetime | None = None
    acknowledged: bool | None = None
    """Whether an operator has acknowledged it, or it was ended on purpose."""


def list_jobs(
    tx: Tx, wanted: JobFilter, *, before: int | None = None, limit: int
) -> list[dict[str, Any]]:
    """The newest matching jobs, without payloads. `before` is the `seq` of the last job of the
    previous page."""
    query = _query_for(wanted)
    at, number = (_LATEST if wanted.until is None else to_text(wanted.until)), 0
    if query == "jobs_queued":
        number = _LAST_SEQ if before is None else before
    elif before is not None:
        row = tx.one("created_at_of_seq", seq=before)
        at, number = min((at, number), ("" if row is None else row[0], before))
    return tx.dicts(query, **_values(wanted), at=at, before=number, limit=limit)


def find_bulk_ids(tx: Tx, action: str, wanted: JobFilter, limit: int) -> list[str]:
    """The ids of the oldest matching jobs that can be retried, cancelled or acknowledged."""
    until = _LATEST if wanted.until is None else to_text(wanted.until)
    if action == "retry" and wanted.acknowledged is False:
        action = "acknowledge"  # The same jobs, without those that were cancelled.
    rows = tx.all(f"jobs_to_{action}", **_values(wanted), until=until, limit=limit)
    return [row[0] for row in rows]


def _values(wanted: JobFilter) -> dict[str, Any]:
    return {
        "status": wanted.status,
        "plugin": wanted.plugin,
        "pipeline": wanted.pipeline,
        "command": wanted.command,
        "submitted_by": wanted.submitted_by,
        "acknowledged": None if wanted.acknowledged is None else int(wanted.acknowledged),
        "since": "" if wanted.since is None else to_text(wanted.since),
    }


def _query_for(wanted: JobFilter) -> str:
    """The query whose index fits the filters: of the others it reads every row on its way."""
    if wanted.status is JobStatus.QUEUED:
        return "jobs_queued"
    if wanted.status is JobStatus.RUNNING:
        return "jobs_running"
    is_unresolved = wanted.acknowledged is False and wanted.status in ENDED_BADLY
    if is_unresolved and None not in (wanted.plugin, wanted.command):
        return "jobs_unresolved"
    # Of most ledgers nearly every job has succeeded, so that this state needs no index.
    with_success = wanted.status in (None, JobStatus.SUCCEEDED)
    if wanted.pipeline is not None:
        return "jobs_of_pipeline" if with_success else "jobs_of_pipeline_without_success"
    if with_success:
        kind = (wanted.plugin, wanted.command, wanted.submitted_by)
        return "jobs" if kind == (None, None, None) else "jobs_of_kinds"
    return "jobs_without_success" if wanted.plugin is None else "jobs_of_plugin_without_success"


def find_job_ids(tx: Tx, prefix: str, limit: int) -> list[str]:
    """The first job ids with this prefix, including those that only the log has."""
    rows = tx.all("job_ids_with_prefix", prefix=prefix, beyond=f"{prefix}\U0010ffff", limit=limit)
    return [row[0] for row in rows]


def find_job_ids_by_end(tx: Tx, suffix: str, limit: int) -> list[str]:
    """The first job ids with this suffix, at least two characters. The log is read only if the
    queue has none, because no index helps."""
    if len(suffix) < ID_END:
        return []
    rows = tx.all(
        "job_ids_with_suffix", suffix=suffix, tail=suffix[-ID_END:], limit=limit
    ) or tx.all("logged_job_ids_with_suffix", suffix=suffix, limit=limit)
    return [row[0] for row in rows]


def _parse_document(text: str | None) -> Any:
    return None if text is None else document(text)


def count_jobs(ledger: Ledger) -> tuple[int, int]:
    """The number of queued and of running jobs."""

    def work(tx: Any) -> tuple[int, int]:
        return tx.one("queue_depth")[0], tx.one("running_count")[0]

    return ledger.read(work)
