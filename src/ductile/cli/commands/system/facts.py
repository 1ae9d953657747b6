"""`ductile system plugin-facts`: what a plugin has observed."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.cli.options import PLUGIN, limited


@system.read("plugin-facts")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
@click.option("--fact-type", metavar="TYPE", help="Show only facts of this type.")
@limited()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def plugin_facts(call: CommandContext, name: str, **filters: Any) -> None:
    """Show a plugin's facts, newest first, and its state."""
    with call.site.reading() as door:
        path = path_to("system", "plugin-facts", name)
        page = door.get(path, **filters)
    call.show(page, _show)


def _show(page: Json) -> None:
    output.table(
        ("seq", "recorded", "type", "command", "job", "fact"),
        (
            (
                fact["seq"],
                output.when(fact["created_at"]),
                fact["fact_type"],
                fact["command"],
                fact["job_id"],
                output.value(fact["fact_json"]),
            )
            for fact in page["facts"]
        ),
        empty=f"plugin {page['plugin']} has recorded no facts (see fact_outputs in its manifest)",
    )
    if page["cursor"]:
        output.aside(f"more rows: --before {page['cursor']}")
    output.section("state", output.value(page["state"]))
