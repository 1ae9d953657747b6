"""What the ledger has of past attempts: request, context, outcome, and the state before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.jobs.state_machine import ENDED
from ductile.core.values.redact import REDACTED
from ductile.engine.config.compiled import CompiledConfig
from ductile.model import MIB, Cancellation, Job, JobStatus, Json
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import attempts, read
from ductile.store.jobs.attempts import AttemptFilter
from ductile.store.jobs.read import JobFilter

Document = dict[str, Any]
MAX_SCANNED, SCANNED_AT_ONCE = 5000, 500
"""Jobs that are looked at for one page of a comparison; many may be queued or skipped."""
MAX_UPDATES, MAX_UPDATE_BYTES = 2000, 64 * MIB
"""Newest attempts of a plugin that are read for its state at an earlier time, and their updates."""
_NOT_ITS_OWN_END = frozenset(why.value for why in Cancellation)


class NotRecorded(Exception):
    """Why an attempt cannot be repeated or compared."""


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """The last attempt of a job that has ended."""

    job: Job
    """With the number of that attempt."""
    context: Mapping[str, Json]
    """What the job entered with."""
    status: str
    error: str | None
    response: Document | None
    """As it is stored: redacted."""
    started_at: datetime | None
    duration_ms: float | None
    log: tuple[Document, ...]
    """All attempts, as they are stored."""
    notes: tuple[str, ...] = ()
    """What of the request the ledger no longer has."""


class Candidate(NamedTuple):
    seq: int
    job_id: str
    command: str


class CandidatePage(NamedTuple):
    found: list[Candidate]
    next_before: int | None
    """Where the search continues; None if there are no older jobs."""


def list_candidates(
    tx: Tx, plugin: str, since: datetime | None, before: int | None, limit: int
) -> CandidatePage:
    """The newest jobs that have ended; fewer than `limit` if most of the newest ones have not."""
    found: list[Candidate] = []
    wanted = JobFilter(plugin=plugin, since=since)
    for _ in range(MAX_SCANNED // SCANNED_AT_ONCE):
        rows = read.list_jobs(tx, wanted, before=before, limit=SCANNED_AT_ONCE)
        for row in rows:
            if len(found) == limit:
                return CandidatePage(found, found[-1].seq)
            if row["status"] in ENDED and row["status"] != JobStatus.SKIPPED:
                found.append(Candidate(row["seq"], row["id"], row["command"]))
        if len(rows) < SCANNED_AT_ONCE:
            return CandidatePage(found, None)
        before = rows[-1]["seq"]
    return CandidatePage(found, before)


def load_attempt(tx: Tx, job_id: str) -> RecordedAttempt:
    """Raises `NotRecorded` for a job without an attempt that ended by itself."""
    job = read.load_job(tx, job_id)
    if job is None:
        raise NotRecorded("the job is past its retention, and only its log remains")
    if job.flaw is not None:
        raise NotRecorded(job.flaw)
    log = read.describe_job(tx, job_id)
    rows = log["attempts"] if log else []
    if not rows:
        raise NotRecorded("the job has no attempt in the log")
    last = rows[-1]
    if last["last_error"] in _NOT_ITS_OWN_END:
        raise NotRecorded(f"its last attempt did not end by itself: {last['last_error']}")
    if not last["duration_ms"] and last["result"] is None:
        raise NotRecorded(f"its last attempt ran no process: {last['last_error']}")
    context, notes = _load_context(tx, job)
    response = last["result"]
    return RecordedAttempt(
        job=replace(job, attempt=last["attempt"], status=JobStatus.RUNNING),
        context=context,
        status=last["status"],
        error=last["last_error"],
        response=response if isinstance(response, dict) else None,
        started_at=moment_of(last["started_at"]) if last["started_at"] else None,
        duration_ms=last["duration_ms"],
        log=tuple(rows),
        notes=notes,
    )


def _load_context(tx: Tx, job: Job) -> tuple[Mapping[str, Json], tuple[str, ...]]:
    if job.entered_context_id is None:
        return {}, ()
    row = tx.one("context", id=job.entered_context_id)
    if row is None:
        return {}, ("the context of the request is past its retention; it is empty here",)
    return orjson.loads(row[0]), ()


class StateBefore(NamedTuple):
    """The state of a plugin before one of its attempts."""

    state: Mapping[str, Json]
    notes: tuple[str, ...]
    """Why it may differ from what the attempt received; empty if it is exact."""


@dataclass(frozen=True, slots=True)
class StateUpdate:
    at: datetime
    values: Mapping[str, Json]
    """As they are stored: values with the name of a secret are removed."""
    replaces: bool = False
    """Whether they are the whole state from then on."""


@dataclass(frozen=True, slots=True)
class StateHistory:
    """What is known of a plugin's state over time.

    The ledger has only the present state, and the updates in the responses of the job log. Both
    together give the state before most attempts; where they do not, this is reported.
    """

    current: Mapping[str, Json]
    updates: Sequence[StateUpdate]
    """Oldest first."""
    changed_at: datetime | None
    """When the present state was stored; None if the plugin never had one."""
    known_since: datetime | None = None
    """The updates before it were not read; None if all were."""

    def before(self, started_at: datetime | None) -> StateBefore:
        if self.changed_at is None:
            return StateBefore({}, ())
        if started_at is not None and self.changed_at <= started_at:
            return StateBefore(self.current, ())
        if started_at is None:
            return StateBefore(self.current, ("the start of the attempt is not recorded",))
        earlier = [update for update in self.updates if update.at <= started_at]
        later = self.updates[len(earlier) :]
        state, notes = self._fold(earlier, {key for update in later for key in update.values})
        if any(update.replaces for update in later) and not any(u.replaces for u in earlier):
            notes.append("the whole state was replaced later; the log may not have all of it")
        if self.known_since is not None and started_at < self.known_since:
            notes.append(f"only updates since {to_text(self.known_since)} were read from the log")
        is_edited = not self.updates or self.changed_at > self.updates[-1].at
        if is_edited:
            notes.append("the state was changed later by something else than a job in the log")
        return StateBefore(state, tuple(notes))

    def _fold(
        self, earlier: Sequence[StateUpdate], touched_later: set[str]
    ) -> tuple[dict[str, Json], list[str]]:
        known: dict[str, Json] = {}
        is_whole = False
        for update in earlier:
            if update.replaces:
                known, is_whole = {}, True
            known.update(update.values)
        removed = {key for key, value in known.items() if _has_removed_parts(value)}
        notes = []
        uncertain = sorted(removed & touched_later)
        if uncertain:
            notes.append(f"secret values of the state are not in the log: {', '.join(uncertain)}")
        # Unless a later update has replaced them, the present values are those of the time.
        state = {key: self.current.get(key) if key in removed else known[key] for key in known}
        if not is_whole:
            rest = self.current.keys() - known.keys() - touched_later
            state |= {key: self.current[key] for key in rest}
            unknown = sorted(touched_later - known.keys())
            if unknown:
                names = ", ".join(unknown)
                notes.append(f"the log has no value of the state from before the attempt: {names}")
        return state, notes


def _has_removed_parts(value: Json) -> bool:
    if isinstance(value, str):
        return REDACTED in value
    if isinstance(value, Mapping):
        return any(map(_has_removed_parts, value.values()))
    return isinstance(value, list) and any(map(_has_removed_parts, value))


def read_state_history(ledger: Ledger, compiled: CompiledConfig, plugin: str) -> StateHistory:
    row = ledger.read(lambda tx: tx.one("state_with_time", plugin=plugin))
    if row is None:
        return StateHistory({}, (), None)
    found: list[StateUpdate] = []
    loaded = compiled.registry.plugins.get(plugin)
    before, scanned, size = None, 0, 0
    known_since: datetime | None = None
    wanted = AttemptFilter(plugin=plugin, status=JobStatus.SUCCEEDED.value, results=True)
    while scanned < MAX_UPDATES and size < MAX_UPDATE_BYTES:
        page = attempts.list_attempts(
            ledger, wanted, before=before, limit=200, is_out_of_time=lambda: False
        )
        for each in page.rows:
            fact = loaded.fact_output(each["command"]) if loaded else None
            mirrors = fact is not None and fact.compatibility_view == "mirror_object"
            values = _updates_of(each["result"])
            ended = moment_of(each["completed_at"])
            if values and ended is not None and (fact is None or mirrors):
                found.append(StateUpdate(ended, values, replaces=mirrors))
                size += len(orjson.dumps(values))
            known_since = ended or known_since
        scanned += len(page.rows)
        before = page.next_before
        if before is None:
            known_since = None
            break
    changed = moment_of(row[1]) if row[1] else None
    return StateHistory(orjson.loads(row[0]), found[::-1], changed, known_since)


def _updates_of(response: Json) -> Mapping[str, Json]:
    updates = response.get("state_updates") if isinstance(response, dict) else None
    return updates if isinstance(updates, dict) else {}
