"""Jobs set aside, and the rows that lead a claim to them: one per limit key and pipeline.

A claim reads these rows in the order of their first jobs, so that its cost does not grow with the
number of keys. Rows with a rate key have an order of their own, which one row for all of them leads
to: however many they are, one job starts when the rate allows it. A row whose key is closed, paused
or (where many are) full leaves the order until that may have changed. Rows are inserted and deleted
by claims that hold the plugin's lock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from functools import cache
from hashlib import blake2b
from typing import NamedTuple

import orjson

from ductile.clock import from_text, to_text
from ductile.core.flow.keys import SEPARATOR
from ductile.core.flow.limits import PluginLimits, parse_limit_key
from ductile.store.engines.api import Tx
from ductile.store.flow.gate import Gate

MOST_RELEASED = 64
"""How many rows return to the order in one claim. Rows that share a rate are due at once, but only
one of them can start: the others leave the order again."""
MOST_RETURNED = 500
LONGEST_HOLD = timedelta(minutes=5)
"""After that a hold is computed again: the clock may have been set back since, or the pause may
have ended after the claim that held the row had read it."""


class KeyRow(NamedTuple):
    limit_key: str
    pipeline: str
    place: int
    """At most the place of the first job set aside of the key."""

    @property
    def is_rate(self) -> bool:
        """Whether it leads to the rows of a rate key."""
        return self.pipeline == SEPARATOR

    @property
    def rate_key(self) -> str:
        return parse_limit_key(self.limit_key).rate_key


def set_jobs_aside(tx: Tx, job_ids: Sequence[str]) -> None:
    """Take queued jobs out of the queue's order; from then on they are found by their keys."""
    ids = orjson.dumps(list(job_ids)).decode()
    tx.run("set_jobs_aside", ids=ids)
    tx.run("add_set_aside_keys", ids=ids)
    tx.run("add_rate_rows", ids=ids)


def list_first(
    tx: Tx, plugin: str, unknown: Collection[str], *, limit: int, passed: int
) -> list[KeyRow]:
    """The first rows of the order, after those that were passed, without `unknown` pipelines."""
    values = {"plugin": plugin, "paused": _names(unknown), "limit": limit, "passed": passed}
    rows = tx.all("first_set_aside_keys", **values)
    return [KeyRow(*row) for row in rows]


def list_of_rate(
    tx: Tx, plugin: str, rate_key: str, unknown: Collection[str], *, limit: int, passed: int
) -> list[KeyRow]:
    """As `list_first`, of the rows with this rate key."""
    values = {"paused": _names(unknown), "limit": limit, "passed": passed}
    rows = tx.all("first_keys_of_rate", plugin=plugin, rate_key=rate_key, **values)
    return [KeyRow(*row) for row in rows]


def move_rate(tx: Tx, plugin: str, row: KeyRow, place: int) -> None:
    """Move the row of a rate key to the place of the first row that it leads to."""
    if place != row.place:
        tx.run("move_key", place=place, **_key(plugin, row))


def rest_rate(tx: Tx, gate: Gate, row: KeyRow) -> None:
    """Take the row of a rate key out of the order, none of whose rows may start a job."""
    found = tx.one("next_of_rate", plugin=gate.plugin, rate_key=row.rate_key)
    if found is None:
        tx.run("delete_key", **_key(gate.plugin, row))
    else:
        # A row that returns to the order for another reason returns this one as well.
        hold_until(tx, gate, row, None if found[1] is None else from_text(found[1]))


def correct_place(tx: Tx, plugin: str, row: KeyRow) -> KeyRow | None:
    """Move the row to the place of its first job; None if there is none, and the row is deleted."""
    key = _key(plugin, row)
    first = tx.one("first_place_of_key", **key)
    if first is None:
        tx.run("delete_key", **key)
        return None
    if first[0] != row.place:
        tx.run("move_key", place=first[0], **key)
    return row._replace(place=first[0])


def hold_until(tx: Tx, gate: Gate, row: KeyRow, until: datetime | None) -> None:
    """Take a row out of the order until then; None means for the longest time."""
    latest = gate.now + LONGEST_HOLD
    end = latest if until is None else min(until, latest)
    limits = _fingerprint(gate.limits)
    tx.run("hold_key", until=to_text(end), limits=limits, full_key=None, **_key(gate.plugin, row))
    tx.effects.add_opening(end)


def hold_full(tx: Tx, gate: Gate, row: KeyRow, concurrency_key: str) -> None:
    """Take a row out of the order until fewer jobs of its concurrency key run."""
    key = _key(gate.plugin, row)
    tx.run("hold_key", until=None, limits=None, full_key=concurrency_key, **key)


class Overview(NamedTuple):
    """What a claim needs to know of a plugin's jobs set aside."""

    due: list[KeyRow]
    """Rows whose time has come, or was computed under other limits."""
    full_keys: list[str]
    """Concurrency keys that were full when a claim met them."""
    first: list[KeyRow]
    """The first rows of the order, without those of pipelines that only other nodes know."""
    has_placed: bool
    """Whether any job has a priority."""


def read_overview(tx: Tx, gate: Gate, unknown: Collection[str], *, first: int) -> Overview:
    rows = tx.all(
        "set_aside_overview",
        plugin=gate.plugin,
        now=to_text(gate.now),
        latest=to_text(gate.now + LONGEST_HOLD),
        limits=_fingerprint(gate.limits),
        limit=MOST_RELEASED,
        first=first,
        paused=_names(unknown),
    )
    keys = [(kind, KeyRow(*row)) for kind, *row in rows]
    return Overview(
        [row for kind, row in keys if kind == "due"],
        [row.limit_key for kind, row in keys if kind == "full"],
        sorted((row for kind, row in keys if kind == "first"), key=lambda row: row.place),
        any(kind == "placed" for kind, _ in keys),
    )


def release_rows(tx: Tx, gate: Gate, overview: Overview) -> int:
    """Return rows to the order that nothing may hold now; `MOST_RELEASED` if there may be more."""
    found = overview.due[:MOST_RELEASED]
    for full_key in overview.full_keys:
        if len(found) < MOST_RELEASED and not gate.is_key_full(full_key):
            limit = MOST_RELEASED - len(found)
            values = {"plugin": gate.plugin, "full_key": full_key, "limit": limit}
            rows = tx.all("rows_of_full_key", **values)
            found += [KeyRow(limit_key, pipeline, 0) for limit_key, pipeline in rows]
    for row in found:
        tx.run("hold_key", until=None, limits=None, full_key=None, **_key(gate.plugin, row))
        if row.rate_key and not row.is_rate:
            rate = KeyRow(f"{SEPARATOR}{row.rate_key}", SEPARATOR, row.place)
            tx.run("open_rate_row", place=row.place, **_key(gate.plugin, rate))
    return len(found)


def return_lost(tx: Tx) -> int:
    """Return jobs to the order that were set aside without a row, at most `MOST_RETURNED`."""
    lost = [id for (id,) in tx.all("lost_jobs", limit=MOST_RETURNED)]
    if lost:
        tx.run("return_lost_jobs", ids=orjson.dumps(lost).decode())
        tx.effects.ready_any = True
    return len(lost)


def has_lost(tx: Tx) -> bool:
    return tx.one("lost_jobs", limit=1) is not None


def release_pipeline(tx: Tx, pipeline: str) -> None:
    """Return the rows of a pipeline to the order, because its pause has changed."""
    tx.run("release_pipeline_keys", pipeline=pipeline)


def _names(pipelines: Collection[str]) -> str:
    return orjson.dumps(list(pipelines)).decode() if pipelines else "[]"


def _key(plugin: str, row: KeyRow) -> dict[str, str]:
    return {"plugin": plugin, "limit_key": row.limit_key, "pipeline": row.pipeline}


@cache
def _fingerprint(limits: PluginLimits) -> str:
    return blake2b(repr(limits).encode(), digest_size=8).hexdigest()
