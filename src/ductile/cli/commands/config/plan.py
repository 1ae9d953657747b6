"""`ductile config plan`: what the files would change, before they are applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, read
from ductile.clock import from_text

CHANGED = 2
COLOURS = {
    "added": "green",
    "opens": "green",
    "released": "green",
    "removed": "red",
    "closes": "red",
    "ended": "red",
    "fails": "red",
}
SHOWN_FIRES = 3
HORIZON = timedelta(days=7)


@read("plan")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
def plan(context: CommandContext, directory: Path | None) -> int:
    """Compare the files with the running configuration.

    DIR is another directory with a configuration. Nothing is changed. Exit 0 if nothing would
    change, 2 if something would, 78 if the configuration is invalid.
    """
    client = context.require_gateway(
        "no gateway is running in {state_dir}, so there is nothing to "
        "compare with; to check the files: ductile config check"
    )
    query = {} if directory is None else {"directory": str(directory.absolute())}
    document = client.get("/config/plan", **query)
    context.show(document, show_plan)
    return CHANGED if document["changed"] else 0


def show_plan(document: Mapping[str, Any]) -> None:
    for warning in document["warnings"]:
        output.print_line(f"warning: {warning}", fg="yellow")
    if not document["changed"]:
        output.print_line("nothing would change")
        return
    _print_group("needs a restart", [_restart_line(row) for row in document["restart"]])
    _show_schedules(document["schedules"], from_text(document["made_at"]) + HORIZON)
    _show_graph(document["graph"])
    _print_group("plugins", [_plugin_line(row) for row in document["plugins"]])
    _print_group("webhooks", [_access_line(row, "path") for row in document["webhooks"]])
    _print_group("tokens", [_access_line(row, "token") for row in document["tokens"]])
    _print_group("secrets", [(f"changed  {path}", "yellow") for path in document["secrets"]])
    _print_group("settings", [format_setting(row) for row in document["settings"]])
    _print_group("queued jobs", [_job_line(row) for row in document["jobs"]])
    if document["jobs_left_out"]:
        output.print_line("warning: not all kinds of queued jobs were compared", fg="yellow")


Line = tuple[str, str | None]
"""A text and its colour."""


def _print_group(title: str, lines: Sequence[Line]) -> None:
    if lines:
        output.print_line(f"{title}:", bold=True)
        for text, colour in lines:
            output.print_line(f"  {text}", fg=colour)


def _restart_line(row: Mapping[str, Any]) -> Line:
    text = f"{row['setting']}: {row['before']} -> {row['after']}; {row['message']}"
    return text, "red"


def _show_schedules(rows: Sequence[Mapping[str, Any]], horizon: datetime) -> None:
    lines: list[Line] = []
    for row in rows:
        rules = [rule for rule in (row["before"], row["after"]) if rule]
        shown = " -> ".join(dict.fromkeys(rules))
        fields = [field for field in row["fields"] if field not in ("rule", "timezone")]
        more = f"; also {', '.join(fields)}" if fields else ""
        paused = "; paused, so it does not fire" if row["paused"] else ""
        lines.append(
            (f"{row['change']}  {row['schedule']}: {shown}{more}{paused}", _colour(row["change"]))
        )
        lines += _fire_lines("+", row["appear"], row, "green")
        lines += _fire_lines("-", row["disappear"], row, "red")
        if from_text(row["compared_until"]) < horizon:
            until = output.format_time(row["compared_until"])
            lines.append((f"  only the fires until {until} were compared", "yellow"))
    _print_group("schedules (fires of the next 7 days)", lines)


def _fire_lines(
    sign: str, fires: Mapping[str, Any], row: Mapping[str, Any], colour: str
) -> list[Line]:
    if not fires["count"]:
        return []
    times = ", ".join(fire["local"] for fire in fires["first"][:SHOWN_FIRES])
    rest = fires["count"] - SHOWN_FIRES
    more = f", and {rest} more" if rest > 0 else ""
    about = "" if row["exact"] else " (each run moves the next)"
    return [
        (f"  {sign} {output.format_count(fires['count'], 'fire')}: {times}{more}{about}", colour)
    ]


def _show_graph(graph: Mapping[str, Any]) -> None:
    lines: list[Line] = [(f"+ {edge}", "green") for edge in graph["edges_added"]]
    lines += [(f"- {edge}", "red") for edge in graph["edges_removed"]]
    for noun in ("route", "pipeline", "step"):
        for row in graph[f"{noun}s"]:
            fields = f": {', '.join(row['fields'])}" if row["fields"] else ""
            lines.append((f"{row['change']}  {noun} {row['name']}{fields}", _colour(row["change"])))
    _print_group("routes and pipelines", lines)


def _plugin_line(row: Mapping[str, Any]) -> Line:
    states = f": {row['before']} -> {row['after']}" if row["before"] != row["after"] else ""
    differs = f" ({', '.join(row['differs'])})" if row["differs"] else ""
    return f"{row['plugin']}{states}{differs}", "yellow"


def _access_line(row: Mapping[str, Any], noun: str) -> Line:
    text = f"{row['change']}  {row[noun]}"
    if row["fields"]:
        text += f" ({', '.join(row['fields'])})"
    scopes = [row.get("scopes_before"), row.get("scopes_after")]
    shown = [" ".join(each) or "no scopes" for each in scopes if each is not None]
    if shown and ("scopes" in row["fields"] or row["change"] != "changed"):
        text += f": {' -> '.join(shown)}"
    return text, _colour(row["change"])


def format_setting(row: Mapping[str, Any]) -> Line:
    return f"{row['setting']}: {_short(row['before'])} -> {_short(row['after'])}", "yellow"


def _short(value: Any) -> str:
    """A list as the number of its items; `--json` has them."""
    if isinstance(value, list):
        return output.format_count(len(value), "item")
    return output.format_value(value)


def _job_line(row: Mapping[str, Any]) -> Line:
    step = f" in {row['pipeline']}/{row['step']}" if row["pipeline"] else ""
    jobs = output.format_count(row["jobs"], "waiting job" if row["waiting"] else "job")
    text = f"{row['effect']}  {jobs} of {row['plugin']}.{row['command']}{step}: {row['reason']}"
    return f"{text} (such as {row['example']})", _colour(row["effect"])


def _colour(change: str) -> str:
    return COLOURS.get(change, "yellow")
