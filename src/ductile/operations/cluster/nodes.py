"""The nodes that share the ledger, and the state of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ductile.clock import to_text
from ductile.engine.recovery.dead_nodes import LOST_AFTER
from ductile.engine.services import Services
from ductile.errors import NotFound, Refused
from ductile.store import nodes


def report_nodes(services: Services) -> dict[str, Any]:
    """Every registered node with its state, and the name of the node that answers."""
    rows = services.ledger.read(nodes.list_nodes)
    for row in rows:
        if services.loops and row["boot"] == services.boot:
            # A node that answers lives; alone on SQLite it does not renew its row.
            row["seen_at"], row["seconds_since_seen"] = to_text(services.clock.now()), 0.0
        row["state"] = find_state(row)
    waiting = services.ledger.waiting_migration
    return {"node": services.node, "nodes": rows, "waiting_migration": waiting}


def change_drain(services: Services, name: str, *, drained: bool, dry: bool) -> dict[str, Any]:
    """Drain or resume a node; a node other than this one notices it within two seconds."""
    row = find_node(services, name)
    if not dry:
        services.ledger.write(lambda tx: nodes.set_drained(tx, name, drained=drained))
        if name == services.node:
            services.set_drained(drained)
        row = find_node(services, name)
    return {"name": name, "state": row["state"], "jobs": row["jobs"]}


def forget_node(services: Services, name: str, *, dry: bool) -> dict[str, Any]:
    """Delete a node that is stopped or lost from the registry; jobs no longer wait for it."""
    row = find_node(services, name)
    if row["state"] not in ("stopped", "lost"):
        raise Refused(f"node {name} is {row['state']}; only a node that has ended can be forgotten")
    if not services.ledger.boot_is_dead(row["boot"]):
        raise Refused(
            f"node {name} is {row['state']}, but its session with the database lives; another node "
            "ends it within seconds, and takes over its jobs"
        )
    if not dry:
        services.ledger.write(lambda tx: nodes.forget(tx, name, row["boot"]))
    return {"name": name, "state": row["state"], "jobs": row["jobs"]}


def find_node(services: Services, name: str) -> dict[str, Any]:
    """A registered node with its state. Raises `NotFound`."""
    rows = report_nodes(services)["nodes"]
    found: dict[str, Any] | None = next((row for row in rows if row["name"] == name), None)
    if found is None:
        known = ", ".join(row["name"] for row in rows)
        raise NotFound(f"there is no node {name}; the nodes are {known or 'not registered yet'}")
    return found


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
