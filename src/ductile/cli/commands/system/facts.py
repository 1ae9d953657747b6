"""`ductile system plugin-facts`: the facts and the state of a plugin."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, read
from ductile.cli.options import PLUGIN, limit_option


@read("plugin-facts")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
@click.option("--fact-type", metavar="TYPE", help="Show only facts of this type.")
@limit_option()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def plugin_facts(context: CommandContext, name: str, **filters: Any) -> None:
    """Show a plugin's facts, newest first, and its state."""
    with context.target.open_reader() as api:
        path = path_to("system", "plugin-facts", name)
        page = api.get(path, **filters)
    context.show(page, _show)


def _show(page: Json) -> None:
    output.print_table(
        page["facts"],
        {
            "seq": "seq",
            "recorded": output.time_of("created_at"),
            "type": "fact_type",
            "command": "command",
            "job": "job_id",
            "fact": lambda fact: output.format_value(fact["fact_json"]),
        },
        empty=f"plugin {page['plugin']} has recorded no facts (see fact_outputs in its manifest)",
    )
    if page["cursor"]:
        output.print_stderr(f"more rows: --before {page['cursor']}")
    output.print_section("state", output.format_value(page["state"]))
