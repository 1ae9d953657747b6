"""`ductile node`: the gateways that share a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ductile.cli import output
from ductile.cli.command import CommandContext, Noun

node = Noun("node", "List the nodes that share a ledger.")


@node.read("list")
def listing(context: CommandContext) -> None:
    """List nodes with version, configuration, jobs and state."""
    with context.target.open_reader() as api:
        found = api.get("/nodes")
    context.show(found, _show)


def _show(found: dict[str, Any]) -> None:
    output.print_table(
        ("node", "state", "jobs", "workers", "version", "configuration", "labels", "last seen"),
        (
            (
                row["name"],
                row["state"],
                row["jobs"],
                row["workers"],
                row["version"],
                row["config_hash"][:8],
                _format_labels(row["labels"]),
                output.format_time(row["seen_at"]),
            )
            for row in found["nodes"]
        ),
        empty="no nodes",
    )
    hashes = {
        row["config_hash"] for row in found["nodes"] if row["state"] not in ("stopped", "lost")
    }
    if len(hashes) > 1:
        output.print_stderr("the running nodes have different configurations")


def _format_labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
