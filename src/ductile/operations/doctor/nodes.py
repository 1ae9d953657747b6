"""Checks of the nodes that share the ledger, and of their database."""

from __future__ import annotations

from collections.abc import Iterator

from ductile.operations.cluster.nodes import find_state, is_living
from ductile.operations.doctor.context import DoctorContext
from ductile.operations.doctor.finding import Finding, error, warning
from ductile.store import nodes, notices


def drift(context: DoctorContext) -> Iterator[Finding]:
    """Living nodes with different configurations, versions or directories for workspaces."""
    if context.rows is None:
        return
    rows = [row for row in context.rows.read(nodes.list_nodes) if is_living(row)]
    run = context.command("node list")
    for key, what in (("config_hash", "configurations"), ("version", "versions")):
        values = sorted({str(row[key])[:8] for row in rows})
        if len(values) > 1:
            names = ", ".join(f"{row['name']}: {str(row[key])[:8]}" for row in rows)
            yield warning("nodes", f"the running nodes have different {what}", names, run)


def lost(context: DoctorContext) -> Iterator[Finding]:
    """Nodes that have neither stopped regularly nor been seen lately."""
    if context.rows is None or context.rows.engine == "sqlite":
        return
    for row in context.rows.read(nodes.list_nodes):
        if find_state(row) == "lost":
            why = f"it was last seen at {row['seen_at']}; start it, or forget it"
            run = context.command(f"node forget {row['name']}")
            yield warning("nodes", f"node {row['name']} is lost", why, run)


def stream(context: DoctorContext) -> Iterator[Finding]:
    """Sessions whose open transaction delays the event stream."""
    if context.rows is None:
        return
    for row in context.rows.read(notices.list_holders):
        if row["seconds"] <= notices.LONGEST_TRANSACTION:
            continue
        who = f"session {row['pid']} ({row['who']}, database {row['place']})"
        why = (
            f"its transaction is open for {row['seconds']:.0f} s; events of later transactions "
            "wait for its end"
        )
        run = f'psql -c "SELECT pg_terminate_backend({row["pid"]})"'
        yield error("nodes", f"{who} holds back the event stream", why, run)
