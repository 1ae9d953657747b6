"""`ductile pipeline compare`: recorded runs through changed routes and conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, read
from ductile.cli.commands.pipeline.runs import find_run
from ductile.cli.commands.plugin.compare import MAX_LAST, format_side
from ductile.cli.options import WholeNumber, parse_since
from ductile.cli.progress import show_waiting
from ductile.errors import UsageError
from ductile.model import CORE_PREFIX

COLOURS = {"would run": "green", "would not run": "red", "changed": "yellow"}
SHOWN_DIFFERENCES, SHOWN_RUNS = 5, 20
Page = Callable[..., Json]


@read("compare")
@click.argument("which", metavar="NAME|RUN...", nargs=-1, required=True)
@click.option(
    "--with",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Other directory with a configuration.",
)
@click.option("--last", type=WholeNumber(1, MAX_LAST), help="Maximum number of runs.")
@click.option(
    "--since", metavar="T", type=parse_since, help="Compare only runs started since T (2d, a time)."
)
def compare(
    context: CommandContext,
    which: tuple[str, ...],
    directory: Path | None,
    last: int | None,
    since: str | None,
) -> int:
    """Replay past runs through the files, without running plugins.

    Shows which steps would now run, be skipped or get another input, and what else would start,
    compared with the running configuration. Without a gateway, --with is compared with the files.
    Exit 1 if something differs, or nothing could be compared.
    """
    if directory is None:
        context.require_gateway(
            "no gateway is running in {state_dir}, so there is nothing to compare the files with; "
            "name other files: --with DIR"
        )
    with context.target.open_reader(secrets=True) as api:
        names = {row["name"] for row in api.get("/pipelines")["pipelines"]}
        pipelines = [name for name in which if name in names]
        if len(pipelines) not in (0, len(which)):
            raise UsageError("name one pipeline, or runs")
        if len(pipelines) > 1:
            raise UsageError("name one pipeline")
        more: Json = {} if directory is None else {"directory": str(directory.absolute())}
        if pipelines:
            limit = last or (MAX_LAST if since else 50)
            pages = _read_pages(api, pipelines[0], limit, {**more, "since": since})
        else:
            pages = _read_runs(api, which, more, names)
        with show_waiting("comparing runs"):
            found = list(pages)
    rows = [row for page in found for row in page["runs"]]
    document = {**found[-1], "runs": rows, "cursor": None}
    context.show(document, _show)
    verdicts = {row["verdict"] for row in rows}
    return 1 if "different" in verdicts or "identical" not in verdicts else 0


def _read_pages(api: Any, name: str, limit: int, query: Json) -> Iterator[Json]:
    before = None
    while limit > 0:
        path = path_to("pipelines", name, "compare")
        page: Json = api.get(path, **query, limit=limit, before=before)
        yield page
        limit -= len(page["runs"])
        before = page["cursor"]
        if before is None:
            return


def _read_runs(
    api: Any, typed_ids: tuple[str, ...], query: Json, pipelines: Iterable[str]
) -> Iterator[Json]:
    for typed_id in typed_ids:
        run = find_run(api, typed_id, pipelines)
        path = path_to("pipelines", run["pipeline"], "compare")
        yield api.get(path, run=run["instance_id"], **query)


def _show(document: Json) -> None:
    rows = document["runs"]
    telling = [row for row in rows if row["verdict"] != "identical"]
    for row in telling[:SHOWN_RUNS]:
        _show_run(row)
    if len(telling) > SHOWN_RUNS:
        output.print_line(f"and {len(telling) - SHOWN_RUNS} more; --json has them")
    output.print_line(f"{output.format_count(len(rows), 'run')}:", bold=True)
    for verdict in ("identical", "different", "not_compared"):
        count = sum(row["verdict"] == verdict for row in rows)
        if count:
            output.print_line(f"  {count} {verdict.replace('_', ' ')}")


def _show_run(row: Json) -> None:
    label = row["verdict"].replace("_", " ")
    output.print_line(f"{row['run_id']} ({row['status']}): {label}", bold=True)
    if row["verdict"] == "not_compared":
        output.print_line(f"  {row['reason']}")
        return
    if row["refusal"]:
        output.print_line(f"  would not start: {row['refusal']}", fg="red")
    for step in row["steps"]:
        place = step["step"] + (f" in {step['branch']}" if step["branch"] else "")
        plugin = "" if step["plugin"].startswith(CORE_PREFIX) else f" ({step['plugin']})"
        line = f"  {step['change']}: {place}{plugin}"
        output.print_line(line, fg=COLOURS[step["change"]])
        for each in step["differences"][:SHOWN_DIFFERENCES]:
            sides = [format_side(each, side) for side in ("before", "after")]
            output.print_line(f"    {each['path']}: {' -> '.join(sides)}")
    for sign, key, colour in (("+", "children_added", "green"), ("-", "children_removed", "red")):
        for child in row[key]:
            output.print_line(f"  {sign} {child}", fg=colour)
    for note in row["notes"]:
        output.print_line(f"  note: {note}", fg="yellow")
