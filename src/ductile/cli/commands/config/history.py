"""`ductile config history` and `diff`: the configurations that were in force."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, read
from ductile.cli.commands.config.plan import format_setting


@read("history")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="Maximum number of rows.")
def history(context: CommandContext, limit: int) -> None:
    """List the configurations that were in force, newest first."""
    context.show(context.get("/config/history", limit=limit), _show_history)


def _show_history(document: Mapping[str, Any]) -> None:
    output.print_table(
        document["snapshots"],
        {
            "snapshot": "id",
            "first applied": output.time_of("created_at"),
            "last applied": output.time_of("adopted_at"),
            "state": _state,
        },
        empty="no configuration was in force yet",
    )


def _state(row: Mapping[str, Any]) -> str:
    if row["in_force"]:
        return "in force"
    return "can return" if row["restorable"] else "files not kept"


@read("diff")
@click.argument("older", metavar="[FROM]", required=False)
@click.argument("newer", metavar="[TO]", required=False)
def diff(context: CommandContext, older: str | None, newer: str | None) -> None:
    """Compare two configurations that were in force.

    FROM and TO are snapshots of `ductile config history`. Without them the last two are compared.
    """
    found = context.get("/config/diff", **{"from": older, "to": newer})
    context.show(found, _show_diff)


def _show_diff(document: Mapping[str, Any]) -> None:
    for row in document["settings"]:
        text, colour = format_setting(row)
        output.print_line(text, fg=colour)
    for path in document["secrets"]:
        output.print_line(f"secret changed: {path}", fg="yellow")
    if not document["settings"] and not document["secrets"]:
        output.print_line("no difference")
