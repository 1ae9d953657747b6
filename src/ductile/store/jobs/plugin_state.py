"""The state that a plugin keeps between jobs, and the facts that it records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.model import MIB, Settlement
from ductile.store.engines.api import Tx

MAX_STATE = MIB


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


def load_state(tx: Tx, plugin: str) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(load_state_text(tx, plugin))
    return found


def load_state_text(tx: Tx, plugin: str) -> str:
    """The plugin's state as JSON text."""
    row = tx.one("state_of", plugin=plugin)
    return row[0] if row else "{}"
