"""The state that a plugin keeps between jobs, and the facts that it records."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.jobs.limits import fitting
from ductile.errors import Refused
from ductile.model import MIB, Settlement
from ductile.store.engines.api import Tx

MAX_STATE = MIB
MAX_SEQ = 2**62
REMOVED = object()
"""Instead of a value: the key is removed."""


class StateBusy(Exception):
    """A job of the plugin runs."""

    def __init__(self, job_id: str) -> None:
        super().__init__(job_id)
        self.job_id = job_id


def update_state(tx: Tx, settlement: Settlement) -> str | None:
    """The plugin's state after this settlement, as JSON text; None if it is too large.

    Locks the plugin's row until the transaction ends, so that two jobs of one plugin merge their
    updates one after the other.
    """
    tx.run("ensure_state", plugin=settlement.plugin, now=to_text(settlement.at))
    row = tx.one("state_for_update", plugin=settlement.plugin)
    return merge_state(orjson.loads(row[0]) if row else {}, settlement)


def merge_state(current: Mapping[str, Any], settlement: Settlement) -> str | None:
    """`current` after this settlement, as JSON text; None if it is too large."""
    updates = dict(settlement.state_updates or {})
    after = dict(current)
    if settlement.fact_type is None:
        after.update(updates)
    elif settlement.mirror_fact:
        after = updates
    text = orjson.dumps(after)
    fact = orjson.dumps(updates)
    return None if max(len(text), len(fact)) > MAX_STATE else text.decode()


def write_state(tx: Tx, settlement: Settlement, new_state: str) -> None:
    """Store the new state, and the fact if the settlement records one."""
    now = to_text(settlement.at)
    if settlement.fact_type is not None:
        tx.run(
            "insert_fact",
            plugin=settlement.plugin,
            fact_type=settlement.fact_type,
            job_id=settlement.job_id,
            command=settlement.command,
            fact=orjson.dumps(settlement.state_updates).decode(),
            now=now,
        )
    tx.run("set_state", plugin=settlement.plugin, state=new_state, now=now)


def change_key(tx: Tx, plugin: str, key: str, value: Any, now: datetime) -> dict[str, Any]:
    """Set a key of the plugin's state, or remove it with `REMOVED`; returns the state before.

    Locks the row as `update_state` does. Raises `StateBusy` while a job of the plugin runs, and
    `Refused` if the state would become too large.
    """
    tx.run("ensure_state", plugin=plugin, now=to_text(now))
    row = tx.one("state_for_update", plugin=plugin)
    running = tx.one("running_job_of_plugin", plugin=plugin)
    if running is not None:
        raise StateBusy(running[0])
    before: dict[str, Any] = orjson.loads(row[0]) if row else {}
    after = {name: old for name, old in before.items() if name != key}
    if value is not REMOVED:
        after[key] = value
    text = orjson.dumps(after)
    if len(text) > MAX_STATE:
        raise Refused("the plugin's state would exceed 1 MiB")
    tx.run("set_state", plugin=plugin, state=text.decode(), now=to_text(now))
    return before


def load_state(tx: Tx, plugin: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(load_state_text(tx, plugin))
    return found


def load_state_text(tx: Tx, plugin: str) -> str:
    """The plugin's state as JSON text."""
    row = tx.one("state_of", plugin=plugin)
    return row[0] if row else "{}"


def list_facts(
    tx: Tx, plugin: str, *, fact_type: str | None, before: int | None, limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], int | None]:
    """The newest facts, at most `max_bytes` of them, and where the next page continues."""
    values = {"plugin": plugin, "fact_type": fact_type, "before": before or MAX_SEQ}
    suffix = "" if fact_type is None else "_type"
    # One more than the page has, to know whether another page follows.
    sizes = [size for (size,) in tx.all(f"fact_sizes_of{suffix}", **values, limit=limit + 1)]
    count = fitting(sizes[:limit], max_bytes)
    rows = tx.dicts(f"facts_of{suffix}", **values, limit=count) if count else []
    return rows, rows[-1]["seq"] if rows and count < len(sizes) else None
