"""Limits of the runs of a pipeline per key.

A run begins held: it does not count, and no claim takes its jobs. In the same transaction it takes
its turn, which admits it if fewer runs of its key are open. The end of a run admits the next one in
its own transaction. Nothing is counted in advance: a run counts as long as its row is open and not
held. Two transactions of one key follow each other, on both engines.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from datetime import datetime
from operator import itemgetter
from typing import NamedTuple

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.core.flow.keys import SEPARATOR
from ductile.core.flow.limits import Concurrency, OnFull
from ductile.model import RUN_SUPERSEDED
from ductile.store.engines.api import Row, Tx
from ductile.store.engines.queries import NEVER
from ductile.store.jobs.retries import MAX_DELAY

MOST_ADMITTED = 100
"""How many runs of a key one transaction admits; the next end or the loop admits the others."""
MOST_RUNS = 1000
"""How many runs of a key are read; a higher limit is not reached by those that are open."""


class LimitedRun(NamedTuple):
    """The columns of the query `limited_run`."""

    id: str
    pipeline: str
    limit_key: str
    held_since: str | None
    """Its place among the runs that wait; `NEVER` while its first event is debounced."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What follows from the turn of a run: runs that have to end."""

    skipped: Sequence[tuple[str, str]] = field(default_factory=tuple)
    """Held runs that end without having started: (run, reason)."""
    displaced: Sequence[str] = field(default_factory=tuple)
    """Running runs that have to be cancelled."""


NO_CONSEQUENCES = Turn()


def hold_run(tx: Tx, run_id: str, limit_key: str, since: datetime | None) -> None:
    """Let a new run wait for its turn; `since` None means that its event is debounced."""
    at = NEVER if since is None else to_text(since)
    tx.run("hold_run", id=run_id, limit_key=limit_key, since=at)


def take_turn(
    tx: Tx, run_id: str, limit: Concurrency | None, now: datetime, *, must_wait: bool = False
) -> Turn:
    """Admit a held run or let it wait; without a limit it is admitted.

    With `must_wait`, a run whose key is full waits whatever `on_full` says: an operator retries it.
    """
    found = tx.one("limited_run", id=run_id)
    if found is None or found[3] is None:
        return NO_CONSEQUENCES
    run = _lock_key(tx, LimitedRun(*found))
    if run.held_since is None:
        # Another node has decided meanwhile, or the run has ended.
        return NO_CONSEQUENCES
    if run.held_since == NEVER:
        run = run._replace(held_since=to_text(now))
        tx.run("hold_run", id=run.id, limit_key=run.limit_key, since=run.held_since)
    turn = NO_CONSEQUENCES
    if limit is not None and not must_wait:
        turn = _apply_on_full(tx, run, limit)
    if any(id == run_id for id, _ in turn.skipped):
        return turn
    _admit(tx, run.pipeline, run.limit_key, limit)
    # Again, and not what was read: nothing says that this run was the first to be admitted.
    row = tx.one("limited_run", id=run_id)
    if row is not None and row[3] is not None:
        tx.run("park_jobs_of_run", id=run_id)
    return turn


def _lock_key(tx: Tx, run: LimitedRun) -> LimitedRun:
    """Decide about the key after all others that do, and read the run again."""
    tx.hold("run_key", f"{run.pipeline}{SEPARATOR}{run.limit_key}", wait=True)
    found = tx.one("limited_run", id=run.id)
    return run._replace(held_since=None) if found is None else LimitedRun(*found)


def _apply_on_full(tx: Tx, run: LimitedRun, limit: Concurrency) -> Turn:
    key = {"pipeline": run.pipeline, "limit_key": run.limit_key}
    if limit.on_full is OnFull.QUEUE:
        return NO_CONSEQUENCES
    running = tx.all("running_runs", limit=max(limit.limit, MOST_RUNS), **key)
    if limit.on_full is OnFull.SKIP:
        if len(running) < limit.limit:
            return NO_CONSEQUENCES
        reason = f"{describe_full(run, limit, len(running))}; run {running[0][0]} (on_full: skip)"
        return Turn(skipped=[(run.id, reason)])
    older = tx.all("older_held_runs", id=run.id, since=run.held_since, limit=MOST_RUNS, **key)
    reason = describe_newer(run.id)
    remaining = [id for id, displaced_by in running if displaced_by is None]
    excess = remaining[: max(0, len(remaining) - limit.limit + 1)]
    displaced = [id for id in excess if tx.run("displace_run", id=id, by=run.id)]
    return Turn([(id, reason) for (id,) in older], displaced)


def open_key(tx: Tx, pipeline: str, limit_key: str, limit: Concurrency | None) -> int:
    """Admit the next runs of a key, after one of them has ended; returns how many."""
    tx.hold("run_key", f"{pipeline}{SEPARATOR}{limit_key}", wait=True)
    return _admit(tx, pipeline, limit_key, limit)


def _admit(tx: Tx, pipeline: str, limit_key: str, limit: Concurrency | None) -> int:
    key = {"pipeline": pipeline, "limit_key": limit_key}
    room = MOST_ADMITTED
    if limit is not None:
        room = min(room, limit.limit - len(tx.all("running_runs", limit=limit.limit, **key)))
    admitted = tx.all("first_held_runs", limit=room, **key) if room > 0 else []
    for (run_id,) in admitted:
        tx.run("admit_run", id=run_id)
        tx.effects.ready += tx.run("release_jobs_of_run", id=run_id)
    return len(admitted)


def describe_full(run: LimitedRun, limit: Concurrency, count: int) -> str:
    key = f" with the key {run.limit_key!r}" if limit.key else ""
    return f"pipeline {run.pipeline} has {count} of {limit.limit} runs{key} (concurrency)"


def describe_newer(run_id: str) -> str:
    return f"{RUN_SUPERSEDED} {run_id} with the same key (concurrency, on_full: cancel)"


def find_displaced(tx: Tx, run_id: str) -> str | None:
    """The newer run for which this open run is being cancelled."""
    row = tx.one("displaced_run", id=run_id)
    return None if row is None else str(row[1])


def list_displaced(tx: Tx, after: str, limit: int, foreign: Collection[str] = ()) -> list[str]:
    """The open runs that are being cancelled for a newer one, by id after `after`.

    Without those of `foreign` pipelines, which other nodes cancel.
    """
    values = {"after": after, "limit": limit, "paused": orjson.dumps(list(foreign)).decode()}
    return [row[0] for row in tx.all("displaced_runs", **values)]


def list_due(tx: Tx, now: datetime, limit: int, foreign: Collection[str] = ()) -> list[str]:
    """The held runs whose event is not debounced any longer, as `list_displaced`."""
    values = {
        "now": to_text(now),
        "horizon": to_text(now + MAX_DELAY),
        "limit": limit,
        "paused": orjson.dumps(list(foreign)).decode(),
    }
    return [id for (id,) in tx.all("due_debounced_runs", **values)]


def list_pipelines(tx: Tx) -> list[str]:
    """The pipelines with runs that wait."""
    return [name for (name,) in tx.all("limited_pipelines")]


def find_longest_held(tx: Tx, pipeline: str) -> tuple[str, str, str] | None:
    """Of the runs that are the next of their keys, the one that waits longest: run, key, since."""
    found = ((id, key, since) for id, key, since in tx.all("first_held_of_keys", pipeline=pipeline))
    return min(found, key=itemgetter(2), default=None)


def list_open_keys(tx: Tx, pipeline: str, limit: Concurrency | None, most: int) -> list[str]:
    """The keys of a pipeline with runs that may begin, because the limit has changed."""
    room = 2**31 if limit is None else limit.limit
    return [key for (key,) in tx.all("open_run_keys", pipeline=pipeline, most=room, limit=most)]


def list_held(tx: Tx, ids: Collection[str], *, of_jobs: bool) -> dict[str, LimitedRun]:
    """By job or by run, the runs that wait."""
    if not ids:
        return {}
    query = "held_runs_of_jobs" if of_jobs else "held_runs"
    rows: list[Row] = tx.all(query, ids=orjson.dumps(list(ids)).decode())
    return {id: LimitedRun(*columns) for id, *columns in rows}


def list_running(tx: Tx, run: LimitedRun, limit: int) -> list[str]:
    """The runs of the key that count, the oldest first."""
    key = {"pipeline": run.pipeline, "limit_key": run.limit_key}
    return [row[0] for row in tx.all("running_runs", limit=limit, **key)]


def count_before(tx: Tx, run: LimitedRun, limit: int) -> int:
    """How many runs of the key wait before this one; at most `limit`."""
    key = {"pipeline": run.pipeline, "limit_key": run.limit_key}
    since = run.held_since
    return len(tx.all("older_held_runs", id=run.id, since=since, limit=limit, **key))
