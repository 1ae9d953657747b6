"""`ductile system import`: import from the Go program's ledger."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, write
from ductile.cli.progress import interruptible, show_progress
from ductile.errors import Locked, UsageError

DRAIN = (
    "to let them end first, start the Go program without schedules and webhooks, and stop it when "
    "its queue is empty"
)


@write("import")
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path))
def import_(context: CommandContext, path: Path | None) -> None:
    """Import plugin state from the Go program's ledger.

    Imports plugin states, facts, the history of schedules and queued jobs, but not finished
    jobs, logs, and jobs that follow from others (routes, pipelines). PATH defaults to the
    configured ledger path; a Go ledger there is renamed. The gateway must not be running.
    """
    from ductile.clock import SystemClock
    from ductile.operations.go_import import import_memory

    if context.api_url is not None:
        raise UsageError("import works only on the gateway's own machine; omit --api-url")
    settings = context.target.loaded.settings
    source = None if path is None else path.absolute()
    try:
        with interruptible("the import was not completed; repeat it"), show_progress() as report:
            done = import_memory(
                settings, source, now=SystemClock().now(), dry=context.dry_run, watch=report
            )
    except Locked as error:
        raise Locked(
            f"{error.message}; stop it before importing", **error.details, run="ductile system stop"
        ) from error
    context.show({**asdict(done), "dry_run": context.dry_run}, _show)


def _show(done: Json) -> None:
    verb = "would import" if done["dry_run"] else "imported"
    states, facts = (
        output.format_count(len(done["states"]), "state"),
        output.format_count(done["facts"], "fact"),
    )
    past = f"the history of {output.format_count(len(done['schedules']), 'schedule')}"
    jobs = output.format_count(done["jobs"], "queued job")
    output.print_line(f"{verb} {states}, {facts}, {past} and {jobs} from {done['source']}")
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
        left = output.format_count(done["unfinished"], "unfinished job")
        output.print_line(f"note: not imported: {left} of routes or pipelines", fg="yellow")
        if done["dry_run"]:
            output.print_line(f"  {DRAIN}", fg="yellow")
    if done["moved_to"]:
        output.print_line(f"the Go program's ledger is now {done['moved_to']}")
