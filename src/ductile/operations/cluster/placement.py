"""Which nodes can run the jobs that this node cannot."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ductile.operations.cluster.nodes import find_state, is_living
from ductile.store import nodes
from ductile.store.engines.api import Tx


def describe_other_nodes(
    tx: Tx, plugins: Collection[str], absent: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Why jobs of these plugins wait for nodes; a plugin that a node here can run has no entry.

    `absent` are the plugins that this node cannot run, with the labels that they require.
    """
    rows = nodes.list_nodes(tx) if plugins else []
    found: dict[str, str] = {}
    for plugin in plugins:
        having = [row for row in rows if plugin in row["plugins"]]
        living = [row for row in having if is_living(row)]
        if living and all(row["drained_at"] is not None for row in living):
            found[plugin] = f"every node that can run plugin {plugin} is drained"
        elif plugin not in absent:
            continue
        elif living:
            names = _join([row["name"] for row in living])
            found[plugin] = f"only {names} can run plugin {plugin}"
        elif having:
            last = ", ".join(f"{row['name']} is {find_state(row)}" for row in having)
            found[plugin] = f"no living node has plugin {plugin}: {last}"
        elif labels := absent[plugin]:
            wanted = ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
            found[plugin] = f"no living node has the labels that plugin {plugin} requires: {wanted}"
    return found


def describe_pipelines(tx: Tx, unknown: Collection[str]) -> dict[str, str]:
    """Why steps of pipelines that this node does not know wait; none if no other node knows one."""
    rows = nodes.list_nodes(tx) if unknown else []
    found: dict[str, str] = {}
    for pipeline in unknown:
        having = [row for row in rows if pipeline in row["pipelines"]]
        if living := [row["name"] for row in having if is_living(row)]:
            found[pipeline] = f"only {_join(living)} {_verb(living)} pipeline {pipeline}"
        elif having:
            last = ", ".join(f"{row['name']} is {find_state(row)}" for row in having)
            found[pipeline] = f"no living node has pipeline {pipeline}: {last}"
    return found


def _verb(names: list[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _join(names: list[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {', '.join(names)}"
