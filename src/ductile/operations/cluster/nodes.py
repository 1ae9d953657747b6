"""The nodes that share the ledger, and the state of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ductile.clock import to_text
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.engine.services import Services
from ductile.store import nodes


def report_nodes(services: Services) -> dict[str, Any]:
    """Every registered node with its state, and the name of the node that answers."""
    rows = services.ledger.read(nodes.list_nodes)
    for row in rows:
        if services.loops and row["boot"] == services.boot:
            # A node that answers lives; alone on SQLite it does not renew its row.
            row["seen_at"], row["seconds_since_seen"] = to_text(services.clock.now()), 0.0
        row["state"] = find_state(row)
    return {"node": services.node, "nodes": rows}


def find_state(row: Mapping[str, Any]) -> str:
    """The state of a registered node."""
    if row["stopped_at"] is not None:
        return "stopped"
    if not is_living(row):
        return "lost"
    if row["drained_at"] is not None:
        return "draining" if row["jobs"] else "drained"
    return "running"


def is_living(row: Mapping[str, Any]) -> bool:
    """Whether the node was seen recently and has not stopped."""
    recently: bool = row["seconds_since_seen"] < LOST_AFTER.total_seconds()
    return row["stopped_at"] is None and recently
