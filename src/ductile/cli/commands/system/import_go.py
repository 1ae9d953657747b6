"""`ductile system import`: import from the Go program's ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, write
from ductile.errors import Locked, UsageError


@write("import")
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
def import_(context: CommandContext, path: Path | None) -> None:
    """Import plugin state from the Go program's ledger.

    Imports plugin states, facts and the history of schedules, but not jobs and their logs. PATH
    defaults to the configured ledger path; a Go ledger there is renamed. The gateway must not be
    running.
    """
    from ductile.clock import SystemClock
    from ductile.operations.go_import import import_memory

    if context.api_url is not None:
        raise UsageError("import works only on the gateway's own machine; omit --api-url")
    settings = context.target.loaded.settings
    source = None if path is None else path.absolute()
    try:
        done = import_memory(settings, source, now=SystemClock().now(), dry=context.dry_run)
    except Locked as error:
        raise Locked(f"{error.message}; stop it before importing", **error.details) from error
    context.show({**asdict(done), "dry_run": context.dry_run}, _show)


def _show(done: Json) -> None:
    verb = "would import" if done["dry_run"] else "imported"
    states, facts = (
        output.format_count(len(done["states"]), "state"),
        output.format_count(done["facts"], "fact"),
    )
    past = f"the history of {output.format_count(len(done['schedules']), 'schedule')}"
    output.print_line(f"{verb} {states}, {facts} and {past} from {done['source']}")
    for plugin in done["states"]:
        output.print_line(f"  {plugin}")
    for plugin in done["kept"]:
        output.print_line(f"  {plugin} already has a state here, which is kept", fg="yellow")
    for name in done["known"]:
        output.print_line(
            f"  schedule {name} already has a history here, which is kept", fg="yellow"
        )
    for note in done["notes"]:
        output.print_line(f"note: {note}", fg="yellow")
    if done["unfinished"]:
        jobs = output.format_count(done["unfinished"], "job")
        output.print_line(f"note: not imported: {jobs} that had not ended", fg="yellow")
    if done["moved_to"]:
        output.print_line(f"the Go program's ledger is now {done['moved_to']}")
