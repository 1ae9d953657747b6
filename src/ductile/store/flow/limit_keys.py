"""The first job of a plugin with limits that may start.

A claim reads the queue in its order. Jobs whose limit key is full or closed are set aside: they
leave the index of the queue's order and are found by their limit key from then on, so that no claim
reads them again. Nothing has to release them: a claim also looks at the keys with jobs set aside,
in the order of their first jobs, and the running jobs are counted each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime

from ductile._fast_dataclass import dataclass
from ductile.clock import Ids, to_text
from ductile.core.flow.limits import Concurrency, OnFull, parse_limit_key
from ductile.core.flow.pauses import Pauses
from ductile.model import Cancellation, JobStatus
from ductile.store.engines.api import Tx
from ductile.store.flow import set_aside
from ductile.store.flow.gate import Gate
from ductile.store.flow.set_aside import MOST_RELEASED, KeyRow, Overview
from ductile.store.jobs import cancel_requests, close, read
from ductile.store.tx_config import TxConfig

BATCHES = (8, 64, 512, 512)
"""How many jobs or keys a claim reads at once, and sets aside if they are held: few, because the
first is usually free, and then more. A larger backlog that is met for the first time is set aside
in several claims."""
KEY_BATCHES = (8, 64, 256)
"""The same for the rows of keys, each of which a statement of its own holds: a claim stays short
also where a statement takes long."""
MOST_PASSED = 64
"""How many full keys a claim passes; further ones leave the order of the keys until they are not
full any more."""
MOST_RATES_PASSED = 4
"""As `MOST_PASSED`, of rate keys whose first limit key is full."""
MOST_SUPERSEDED = 1000
MOST_SKIPPED = 100
"""How many jobs of a key that were set aside before one claim skips."""


@dataclass(frozen=True, slots=True)
class QueuedJob:
    place: int
    """Its place in the queue: its sequence number, or that of the job that it follows."""
    id: str
    limit_key: str
    command: str
    seq: int


def find_startable(
    tx: Tx,
    gate: Gate,
    conditions: Mapping[str, object],
    pauses: Pauses,
    tx_config: TxConfig,
    first: int | None,
    *,
    has_set_aside: bool,
) -> QueuedJob | None:
    """The oldest job of the plugin that may start; held jobs before it are set aside.

    `conditions` are the values of the fragment `may_run`, and `first` is the position of the oldest
    ready job, if there is one: PostgreSQL reads no entry of the index before it. Without
    `has_set_aside`, the plugin has neither jobs set aside nor jobs with a priority.
    """
    concurrency = gate.limits.concurrency
    may_end_jobs = concurrency is not None and concurrency.on_full is not OnFull.QUEUE
    if not may_end_jobs and not conditions["init_only"]:
        until = gate.closed_until()
        if until is not None:
            tx.effects.add_opening(until)
            return None
    search = _Search(tx, gate, conditions, pauses, tx_config)
    if first is not None:
        search.read_order("first_ready_limit_keys", first)
    if has_set_aside:
        overview = set_aside.read_overview(tx, gate, pauses.unknown, first=BATCHES[0])
        if overview.has_placed:
            search.read_order("first_placed_limit_keys", 0)
        # `init` jobs are never set aside: no key leads to one.
        if not conditions["init_only"]:
            search.read_keys(overview)
    return search.best


class _Search:
    """The search of one claim for the first job of a plugin."""

    def __init__(
        self,
        tx: Tx,
        gate: Gate,
        conditions: Mapping[str, object],
        pauses: Pauses,
        tx_config: TxConfig,
    ) -> None:
        self._tx, self._gate, self._conditions = tx, gate, conditions
        self._pauses, self._tx_config = pauses, tx_config
        self.best: QueuedJob | None = None

    def read_order(self, query: str, first: int) -> None:
        """Read jobs in an order of the queue, and set those aside that are held."""
        for size in BATCHES:
            rows = self._tx.all(query, limit=size, first=first, **self._conditions)
            jobs = [QueuedJob(*row) for row in rows]
            self._gate.read_keys(job.limit_key for job in jobs)
            number = 0
            while number < len(jobs) and self._is_held(jobs[number]):
                number += 1
            _set_aside(self._tx, jobs[:number], self._gate, self._conditions, self._tx_config)
            if number < len(jobs):
                self._consider(jobs[number])
                return
            if len(jobs) < size:
                return
        # The rest of the backlog is read by the next claim, which must not wait for an event.
        self._tx.effects.ready += 1

    def read_keys(self, overview: Overview) -> None:
        """Read the keys with jobs set aside, until no further one can have an earlier job."""
        released = set_aside.release_rows(self._tx, self._gate, overview)
        self._walk_keys(None if released else overview.first)
        # The rest returns in the next claim, which must not wait for an event.
        self._tx.effects.ready += released >= MOST_RELEASED and self.best is None

    def _walk_keys(self, rows: list[KeyRow] | None) -> None:
        """The first rows of the order may be given."""
        passed = 0
        for size in KEY_BATCHES:
            if rows is None:
                rows = self._list_first(limit=size, passed=passed)
            self._gate.read_keys(row.limit_key for row in rows)
            moved = False
            for row in rows:
                if self.best is not None and row.place >= self.best.place:
                    return
                read = self._read_rate if row.is_rate else self._read_key
                stays, has_moved = read(row, passed)
                passed += stays
                moved = moved or has_moved
            if len(rows) < size and not moved:
                return
            rows = None
        self._tx.effects.ready += 1

    def _list_first(self, *, limit: int, passed: int) -> list[KeyRow]:
        plugin, unknown = self._gate.plugin, self._pauses.unknown
        return set_aside.list_first(self._tx, plugin, unknown, limit=limit, passed=passed)

    def _read_rate(self, rate: KeyRow, before: int) -> tuple[bool, bool]:
        """Consider the first job of a rate key; returns as `_read_key`."""
        tx, gate = self._tx, self._gate
        opens_at = gate.rate_opens_at(rate.rate_key)
        if opens_at is not None:
            set_aside.hold_until(tx, gate, rate, opens_at)
            return False, False
        passed, known, has_moved = 0, self.best, False
        for size in KEY_BATCHES:
            rows = self._list_of_rate(rate, limit=size, passed=passed)
            gate.read_keys(row.limit_key for row in rows)
            if rows and not passed:
                set_aside.move_rate(tx, gate.plugin, rate, rows[0].place)
            for row in rows:
                if self.best is not None and row.place >= self.best.place:
                    return True, False
                # A rate key costs a query, so that few of them are passed.
                is_passed = before < MOST_RATES_PASSED
                stays, moved = self._read_key(row, passed if is_passed else MOST_PASSED)
                if self.best is not known:
                    return True, False
                passed += stays
                has_moved = has_moved or moved
            if len(rows) < size:
                break
        else:
            has_moved = True
        # What only other nodes know is theirs to start.
        if not passed and not has_moved and not self._pauses.unknown:
            set_aside.rest_rate(tx, gate, rate)
        # Rows that have moved are read by the next claim, which must not wait for an event.
        tx.effects.ready += has_moved
        return passed > 0 or has_moved or bool(self._pauses.unknown), False

    def _list_of_rate(self, rate: KeyRow, *, limit: int, passed: int) -> list[KeyRow]:
        plugin, unknown = self._gate.plugin, self._pauses.unknown
        return set_aside.list_of_rate(
            self._tx, plugin, rate.rate_key, unknown, limit=limit, passed=passed
        )

    def _read_key(self, row: KeyRow, passed: int) -> tuple[bool, bool]:
        """Consider the first job of a key; returns whether its row stays, and whether it moved."""
        tx, gate = self._tx, self._gate
        values = {**self._conditions, "limit_key": row.limit_key, "pipeline": row.pipeline}
        pause = self._pauses.pipelines.get(row.pipeline)
        if pause is not None:
            set_aside.hold_until(tx, gate, row, pause.until)
            return False, False
        # The command is not known yet; `init` jobs are never set aside.
        if gate.is_full(row.limit_key, ""):
            has_ended = _end_set_aside(tx, gate, values, self._tx_config)
            if has_ended or passed < MOST_PASSED:
                return True, False
            key = parse_limit_key(row.limit_key).concurrency_key
            set_aside.hold_full(tx, gate, row, key)
            return False, False
        opens_at = gate.opens_at(row.limit_key, "")
        if opens_at is not None:
            set_aside.hold_until(tx, gate, row, opens_at)
            return False, False
        first = tx.one("first_set_aside", limit=1, **values)
        if first is not None:
            self._consider(QueuedJob(*first))
            if first[0] == row.place:
                return True, False
        corrected = set_aside.correct_place(tx, gate.plugin, row)
        has_moved = corrected is not None and corrected.place != row.place
        return corrected is not None and not has_moved, has_moved

    def _consider(self, job: QueuedJob) -> None:
        if self.best is None or (job.place, job.seq) < (self.best.place, self.best.seq):
            self.best = job

    def _is_held(self, job: QueuedJob) -> bool:
        if self._gate.is_full(job.limit_key, job.command):
            return True
        opens_at = self._gate.opens_at(job.limit_key, job.command)
        if opens_at is None:
            return False
        self._tx.effects.add_opening(opens_at)
        return True


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
    set_aside.set_jobs_aside(tx, [job.id for job in jobs])
    concurrency = gate.limits.concurrency
    if concurrency is None or concurrency.on_full is OnFull.QUEUE:
        return
    full = [job for job in jobs if gate.is_full(job.limit_key, job.command)]
    if concurrency.on_full is OnFull.SKIP:
        _skip(tx, full, gate, concurrency, tx_config)
    else:
        newest = {job.limit_key: job for job in sorted(full, key=lambda job: job.seq)}
        for job in newest.values():
            _displace_older(tx, job, _list_older(tx, job, conditions), gate, tx_config)


def _end_set_aside(tx: Tx, gate: Gate, values: Mapping[str, object], tx_config: TxConfig) -> bool:
    """Do what `on_full` says for jobs of a full key that were set aside for another reason.

    They have a priority, or a rate held them, or `on_full` was `queue` then. Returns whether
    `on_full` says anything.
    """
    concurrency = gate.limits.concurrency
    if concurrency is None or concurrency.on_full is OnFull.QUEUE:
        return False
    if concurrency.on_full is OnFull.SKIP:
        rows = tx.all("first_set_aside", limit=MOST_SKIPPED, **values)
        _skip(tx, [QueuedJob(*row) for row in rows], gate, concurrency, tx_config)
        # The rest is ended by the next claim, which must not wait for an event.
        tx.effects.ready += len(rows) == MOST_SKIPPED
    elif (row := tx.one("newest_set_aside", **values)) is not None:
        job = QueuedJob(*row)
        older = _list_older(tx, job, values)
        _displace_older(tx, job, older, gate, tx_config)
        tx.effects.ready += len(older) == MOST_SUPERSEDED
    return True


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
    tx: Tx, job: QueuedJob, older: Sequence[str], gate: Gate, tx_config: TxConfig
) -> None:
    """Cancel the running jobs of the key, each once, and skip its older queued jobs."""
    key = parse_limit_key(job.limit_key).concurrency_key
    for limit_key, *columns in tx.all("running_with_limit_key", plugin=gate.plugin):
        if parse_limit_key(limit_key).concurrency_key != key:
            continue
        running = read.parse_job(columns)
        if tx.run("displace_job", id=running.id, attempt=running.attempt):
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
