"""`ductile pipeline pause` and `resume`."""

from __future__ import annotations

import click

from ductile.cli.command import CommandContext, explain_unloaded, write
from ductile.cli.commands import pause as pauses
from ductile.cli.options import PIPELINE


@write("pause")
@click.argument("name", metavar="NAME", type=PIPELINE)
@pauses.pause_options
def pause(context: CommandContext, name: str, **options: str | None) -> None:
    """Keep a pipeline's jobs queued until it is resumed.

    Runs can still be started; their jobs are queued. Running jobs continue.
    """
    with explain_unloaded(context, name):
        pauses.pause(context, "pipelines", name, **options)


@write("resume")
@click.argument("name", metavar="NAME", type=PIPELINE)
def resume(context: CommandContext, name: str) -> None:
    """Run the jobs of a paused pipeline again."""
    pauses.resume(context, "pipelines", name)
