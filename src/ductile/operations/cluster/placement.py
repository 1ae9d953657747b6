"""Which nodes can run the jobs that this node cannot."""

from __future__ import annotations

from collections.abc import Collection

from ductile.operations.cluster.nodes import find_state, is_living
from ductile.store import nodes
from ductile.store.engines.api import Tx


def describe_other_nodes(tx: Tx, plugins: Collection[str]) -> dict[str, str]:
    """For each of these plugins that registered nodes have: where its jobs can run."""
    if not plugins:
        return {}
    rows = nodes.list_nodes(tx)
    found: dict[str, str] = {}
    for plugin in plugins:
        having = [row for row in rows if plugin in row["plugins"]]
        living = [row["name"] for row in having if is_living(row)]
        if living:
            found[plugin] = f"only {_join(living)} can run plugin {plugin}"
        elif having:
            last = ", ".join(f"{row['name']} is {find_state(row)}" for row in having)
            found[plugin] = f"no living node has plugin {plugin}: {last}"
    return found


def _join(names: list[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"
