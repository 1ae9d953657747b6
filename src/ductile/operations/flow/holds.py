"""Which limit or debounce holds a queued job, and when the job may go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import to_text
from ductile.core.flow.limits import parse_limit_key
from ductile.store.engines.api import Tx
from ductile.store.flow.gate import Gate, list_closed_plugins
from ductile.store.tx_config import TxConfig


def describe_holds(
    tx: Tx, rows: Sequence[Mapping[str, Any]], tx_config: TxConfig, now: datetime
) -> dict[str, str]:
    """By job id, the limit that holds the job; only jobs that a limit holds."""
    closed = list_closed_plugins(tx)
    ready = {
        row["id"]: row
        for row in rows
        if row["status"] == "queued"
        and not row.get("next_retry_at")
        and (row["plugin"] in tx_config.limits or row["plugin"] in closed)
    }
    ids = orjson.dumps(list(ready)).decode()
    keys: dict[str, str] = dict(tx.all("limit_keys_of", ids=ids)) if ready else {}
    gates: dict[str, Gate] = {}
    found: dict[str, str] = {}
    for id, limit_key in keys.items():
        plugin, command = ready[id]["plugin"], ready[id]["command"]
        if plugin not in gates:
            limits = tx_config.limits.get(plugin)
            gates[plugin] = Gate(tx, plugin, limits, now, has_closed=plugin in closed)
            gates[plugin].read_keys(keys[i] for i in keys if ready[i]["plugin"] == plugin)
        reason = _describe(gates[plugin], plugin, limit_key, command)
        if reason is not None:
            found[id] = reason
    return found


def describe_debounced(tx: Tx, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """By job id, until when the job waits for further events; only jobs that do."""
    due = {
        row["id"]: row["next_retry_at"]
        for row in rows
        if row["status"] == "queued" and row.get("next_retry_at")
    }
    if not due:
        return {}
    found = tx.all("debounced_jobs", ids=orjson.dumps(list(due)).decode())
    return {id: f"debounced until {due[id]}" for (id,) in found}


def _describe(gate: Gate, plugin: str, limit_key: str, command: str) -> str | None:
    keys, limits = parse_limit_key(limit_key), gate.limits
    if limits.concurrency is not None and gate.is_full(limit_key, command):
        count = gate.running.get(keys.concurrency_key, 0)
        key = f" with the key {keys.concurrency_key!r}" if limits.concurrency.key else ""
        return f"plugin {plugin} runs {count} of {limits.concurrency.limit} jobs{key} (concurrency)"
    opens_at = gate.opens_at(limit_key, command)
    if opens_at is None:
        return None
    at = to_text(opens_at)
    if gate.closed.get(limit_key) == opens_at:
        shown = keys.concurrency_key or keys.rate_key
        key = f" with the key {shown!r}" if shown else ""
        return f"plugin {plugin} asked to start no job{key} before {at} (retry_after)"
    assert limits.rate is not None
    key = f" for the key {keys.rate_key!r}" if limits.rate.key else ""
    return f"the {limits.rate.describe()} of plugin {plugin}{key} allows the next start at {at}"
