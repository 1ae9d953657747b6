"""`ductile node`: the gateways that share a ledger."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext, Noun

POLL_SECONDS = 0.5

node = Noun("node", "List, drain and resume the nodes that share a ledger.")


@node.read("list")
def listing(context: CommandContext) -> None:
    """List nodes with version, configuration, jobs and state."""
    context.show(context.get("/nodes"), _show)


NAME = click.argument("name", metavar="NAME")


@node.write("drain")
@NAME
@click.option("--no-wait", is_flag=True, help="Return while jobs still run.")
def drain(context: CommandContext, name: str, no_wait: bool) -> None:
    """Stop a node from claiming jobs, and wait for its jobs.

    A drained node stays drained when it is restarted; `node resume` ends that.
    """
    with context.open_api() as api:
        result = context.post_to(api, path_to("node", name, "drain"))
        while result["state"] == "draining" and not (no_wait or context.dry_run):
            time.sleep(POLL_SECONDS)
            (row,) = (row for row in api.get("/nodes")["nodes"] if row["name"] == name)
            result |= {"state": row["state"], "jobs": row["jobs"]}
    context.show(result, lambda done: _show_action("drain", done))


@node.write("resume")
@NAME
def resume(context: CommandContext, name: str) -> None:
    """Let a drained node claim jobs again."""
    done = context.post(path_to("node", name, "resume"))
    context.show(done, lambda done: _show_action("resume", done))


@node.write("forget")
@NAME
def forget(context: CommandContext, name: str) -> None:
    """Delete a stopped or lost node from the list.

    If only this node had a plugin, the plugin counts as removed, and its queued jobs end.
    """
    done = context.post(path_to("node", name, "forget"))
    context.show(done, lambda done: _show_action("forget", done))


def _show_action(verb: str, done: Mapping[str, Any]) -> None:
    if done.get("dry_run"):
        output.print_line(f"would {verb} node {done['name']} ({done['state']})")
    elif verb == "forget":
        output.print_line(f"forgot node {done['name']}")
    else:
        jobs = f"; running jobs: {done['jobs']}" if done["jobs"] else ""
        output.print_line(f"node {done['name']} is {done['state']}{jobs}")


def _show(found: dict[str, Any]) -> None:
    output.print_table(
        found["nodes"],
        {
            "node": "name",
            "state": "state",
            "jobs": "jobs",
            "workers": "workers",
            "version": "version",
            "schema": "schema_version",
            "configuration": lambda row: row["config_hash"][:8],
            "labels": lambda row: _format_labels(row["labels"]),
            "last seen": output.time_of("seen_at"),
        },
        empty="no nodes",
    )
    hashes = {
        row["config_hash"] for row in found["nodes"] if row["state"] not in ("stopped", "lost")
    }
    if len(hashes) > 1:
        output.print_stderr("the running nodes have different configurations")
    if found["waiting_migration"]:
        output.print_stderr(found["waiting_migration"])


def _format_labels(labels: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in sorted(labels.items()))
