"""`ductile system import`: moving over from the Go program."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.errors import Locked, UsageError


@system.write("import")
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
def import_(call: CommandContext, path: Path | None) -> None:
    """Take over what is remembered in the Go program's ledger: states, facts, schedules' past.

    Without a PATH it is the one that stands where ours is to be; it is kept aside. No gateway
    may run. Jobs and their logs stay behind.
    """
    from ductile.clock import SystemClock
    from ductile.operations.go_import import import_memory

    if call.api_url is not None:
        raise UsageError("import works on the gateway's own machine alone")
    settings = call.site.loaded.settings
    source = None if path is None else path.absolute()
    try:
        done = import_memory(settings, source, now=SystemClock().now(), dry=call.dry_run)
    except Locked as error:
        raise Locked(f"{error.message}; stop it before you import", **error.details) from error
    call.show({**asdict(done), "dry_run": call.dry_run}, _show)


def _show(done: Json) -> None:
    verb = "would take over" if done["dry_run"] else "took over"
    states, facts = output.count(len(done["states"]), "state"), output.count(done["facts"], "fact")
    past = f"the past of {output.count(len(done['schedules']), 'schedule')}"
    output.line(f"{verb} {states}, {facts} and {past} from {done['source']}")
    for plugin in done["states"]:
        output.line(f"  {plugin}")
    for plugin in done["kept"]:
        output.line(f"  {plugin} remembers something here already, which stays", fg="yellow")
    for name in done["known"]:
        output.line(f"  schedule {name} has a past here already, which stays", fg="yellow")
    for note in done["notes"]:
        output.line(f"note: {note}", fg="yellow")
    if done["unfinished"]:
        jobs = output.count(done["unfinished"], "job")
        stays = "stays" if done["unfinished"] == 1 else "stay"
        output.line(f"note: {jobs} not over there {stays} behind", fg="yellow")
    if done["moved_to"]:
        output.line(f"that ledger is kept: {done['moved_to']}")
