"""Which limit holds a queued job, and when the job may go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from ductile.clock import to_text
from ductile.core.flow.limits import parse_lane
from ductile.store.engines.api import Tx
from ductile.store.flow.gate import Gate, load_closed_lanes, load_gate
from ductile.store.tx_config import TxConfig


def describe_holds(
    tx: Tx, rows: Sequence[Mapping[str, Any]], tx_config: TxConfig, now: datetime
) -> dict[str, str]:
    """By job id, the limit that holds the job; only jobs that a limit holds."""
    closed = load_closed_lanes(tx, now)
    gates: dict[str, Gate] = {}
    found: dict[str, str] = {}
    for row in rows:
        plugin = row["plugin"]
        if row["status"] != "queued" or row.get("next_retry_at"):
            continue
        if plugin not in tx_config.limits and plugin not in closed:
            continue
        if plugin not in gates:
            gates[plugin] = load_gate(tx, plugin, tx_config.limits.get(plugin), now)
        lane = tx.one("lane_of", id=row["id"])
        reason = None if lane is None else _describe(gates[plugin], plugin, lane[0], row["command"])
        if reason is not None:
            found[row["id"]] = reason
    return found


def _describe(gate: Gate, plugin: str, text: str, command: str) -> str | None:
    lane, limits = parse_lane(text), gate.limits
    if limits.concurrency is not None and gate.is_full(text, command):
        count = gate.running.get(lane.concurrency_key, 0)
        key = f" with the key {lane.concurrency_key!r}" if limits.concurrency.key else ""
        return f"plugin {plugin} runs {count} of {limits.concurrency.limit} jobs{key} (concurrency)"
    opens_at = gate.opens_at(text, command)
    if opens_at is None:
        return None
    at = to_text(opens_at)
    if gate.closed.get(text) == opens_at:
        shown = lane.concurrency_key or lane.rate_key
        key = f" with the key {shown!r}" if shown else ""
        return f"plugin {plugin} asked to start no job{key} before {at} (retry_after)"
    assert limits.rate is not None
    key = f" for the key {lane.rate_key!r}" if limits.rate.key else ""
    return f"the {limits.rate.describe()} of plugin {plugin}{key} allows the next start at {at}"
