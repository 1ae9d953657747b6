"""`ductile system pause` and `resume`."""

from __future__ import annotations

from ductile.cli.command import CommandContext, write
from ductile.cli.commands import pause as pauses


@write("pause")
@pauses.pause_options
def pause(context: CommandContext, **options: str | None) -> None:
    """Keep all jobs queued until the gateway is resumed.

    Jobs are still accepted and enqueued. Running jobs continue.
    """
    pauses.pause(context, "system", **options)


@write("resume")
def resume(context: CommandContext) -> None:
    """Run jobs again after a pause of the gateway."""
    pauses.resume(context, "system")
