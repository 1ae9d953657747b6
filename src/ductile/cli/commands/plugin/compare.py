"""`ductile plugin compare`: a changed plugin on the recorded requests of past jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, read
from ductile.cli.options import PLUGIN, WholeNumber, parse_since
from ductile.cli.progress import show_waiting

COLOURS = {
    "identical": "green",
    "ignored": "green",
    "different": "yellow",
    "failed": "red",
    "not_compared": "bright_black",
}
LABELS = {
    "ignored": "different in ignored fields only",
    "failed": "failed, but succeeded before",
    "not_compared": "not compared",
}
MAX_LAST = 1000
SHOWN_DIFFERENCES = 5
MAX_SHOWN_JOBS = 20
Page = Callable[[Json], Json]


@read("compare")
@click.argument("name", metavar="NAME", type=PLUGIN)
@click.option(
    "--with",
    "directory",
    metavar="PATH",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Directory of the changed plugin. Default: the plugin roots.",
)
@click.option(
    "--last",
    type=WholeNumber(1, MAX_LAST),
    help="Maximum number of jobs. Default: 50, 1000 with --since.",
)
@click.option(
    "--since", metavar="T", type=parse_since, help="Compare only jobs created since T (2d, a time)."
)
@click.option(
    "--ignore",
    metavar="PATH",
    multiple=True,
    help="Path that may differ: result.at, events.*.payload.id.",
)
@click.option("--allow-network", is_flag=True, help="Give the plugin its network.")
def compare(
    context: CommandContext,
    name: str,
    directory: Path | None,
    last: int | None,
    since: str | None,
    ignore: tuple[str, ...],
    allow_network: bool,
) -> int:
    """Run a changed plugin on the requests of past jobs.

    Shows where status, error, result, events and state differ from the recorded ones. Each job
    runs in a sandbox without network that writes only to a copy of its workspace. Nothing is
    committed, sent or scheduled. Exit 1 if something differs, or nothing could be compared.
    """
    from ductile.operations.compare.verdict import has_difference

    wanted: Json = {"limit": last or (MAX_LAST if since else 50), "ignore": list(ignore)}
    if directory is not None:
        wanted["directory"] = str(directory.absolute())
    if since is not None:
        wanted["since"] = since
    if allow_network:
        wanted["allow_network"] = True
    with _open_pages(context, name) as page:
        document = _collect(page, wanted)
    context.show(document, _show)
    return 1 if has_difference(document["summary"]) else 0


@contextmanager
def _open_pages(context: CommandContext, name: str) -> Iterator[Page]:
    """Yield what returns a page: the running gateway, or this process with the ledger's file."""
    client = context.target.client()
    if client is not None:
        yield lambda wanted: client.post(path_to("plugins", name, "compare"), wanted)
        return
    from ductile.cli.in_process import open_services

    context.note(f"no gateway is running; reading the ledger in {context.target.state_dir}")
    with open_services(context.target.runnable) as services:
        yield lambda wanted: _compare_here(services, name, wanted)


def _compare_here(services: Any, name: str, wanted: Json) -> Json:
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.clock import from_text
    from ductile.core.values.differences import IgnoredPaths
    from ductile.operations.compare.plugin import PluginComparison, compare_plugin
    from ductile.operations.compare.temporary_slot import TemporarySlot

    directory, since = wanted.get("directory"), wanted.get("since")
    comparison = PluginComparison(
        name,
        None if directory is None else Path(directory),
        limit=wanted["limit"],
        since=None if since is None else from_text(since),
        before=wanted.get("before"),
        ignored=IgnoredPaths(wanted["ignore"]),
        allow_network=wanted.get("allow_network", False),
    )
    with sigterm_as_interrupt():
        return compare_plugin(services, comparison, TemporarySlot())


def _collect(page: Page, wanted: Json) -> Json:
    """Read page after page, with the number of jobs on a terminal."""
    from ductile.operations.compare.verdict import summarize

    jobs: list[Json] = []
    left = wanted["limit"]
    while True:
        with show_waiting(f"compared {len(jobs)} jobs"):
            found = page({**wanted, "limit": left})
        jobs += found["jobs"]
        left -= len(found["jobs"])
        if found["cursor"] is None or left <= 0:
            break
        wanted = {**wanted, "before": found["cursor"]}
    return {**found, "jobs": jobs, "summary": summarize(jobs), "cursor": None}


def _show(document: Json) -> None:
    fingerprint = document["fingerprint"][:12]
    program = f"{document['directory']} (version {document['version']}, {fingerprint})"
    output.print_line(f"{document['plugin']}: {program}", bold=True)
    if document["is_loaded"]:
        output.print_line("the gateway has loaded the same files")
    for part, reason in document["sandbox"]["not_held"].items():
        output.print_line(f"warning: the sandbox does not enforce {part}: {reason}", fg="yellow")
    telling = [row for row in document["jobs"] if row["verdict"] in ("different", "failed")]
    for row in telling[:MAX_SHOWN_JOBS]:
        show_outcome(row)
    if len(telling) > MAX_SHOWN_JOBS:
        output.print_line(f"and {len(telling) - MAX_SHOWN_JOBS} more; --json has them")
    reasons = {row["reason"] for row in document["jobs"] if row["verdict"] == "not_compared"}
    for reason in sorted(reasons)[:SHOWN_DIFFERENCES]:
        output.print_line(f"not compared: {reason}", fg="bright_black")
    _show_summary(document["summary"], len(document["jobs"]))


def show_outcome(row: Mapping[str, Any]) -> None:
    """Print a repeated job with what differs."""
    verdict = row["verdict"]
    label = click.style(LABELS.get(verdict, verdict), fg=COLOURS[verdict])
    click.echo(f"{output.escape(row['job_id'])} {output.escape(row['command'])}: {label}")
    differences = row["differences"]
    for each in differences[:SHOWN_DIFFERENCES]:
        before, after = (format_side(each, side) for side in ("before", "after"))
        output.print_line(f"  {each['path']}: {before} -> {after}")
    more = len(differences) + row["differences_left_out"] - SHOWN_DIFFERENCES
    if more > 0:
        output.print_line(f"  and {output.format_count(more, 'difference')} more")
    for note in row["notes"]:
        output.print_line(f"  note: {note}", fg="yellow")


def format_side(difference: Mapping[str, Any], side: str) -> str:
    """A value as JSON, so that a text differs from a number."""
    import json

    if side not in difference:
        return "(absent)"
    return output.clip(json.dumps(difference[side], ensure_ascii=False), 100)


def _show_summary(summary: Json, jobs: int) -> None:
    output.print_line(f"{output.format_count(jobs, 'job')}:", bold=True)
    for verdict, colour in COLOURS.items():
        if count := summary[verdict]:
            output.print_line(f"  {count} {LABELS.get(verdict, verdict)}", fg=colour)
    for field in summary["fields"]:
        output.print_line(f"  {field['path']} differs in {field['jobs']}")
    if summary["inexact"]:
        output.print_line(
            f"  {summary['inexact']} ran without the whole recorded request or state; --json says "
            "which",
            fg="yellow",
        )
    before, after = summary["recorded_duration_ms"], summary["duration_ms"]
    if before is not None and after is not None:
        times = [output.format_duration(value / 1000) for value in (before, after)]
        output.print_line(f"  median duration: {times[0]} -> {times[1]}")
