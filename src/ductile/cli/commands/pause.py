"""`pause` and `resume` of the nouns `plugin`, `pipeline` and `system`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext
from ductile.cli.options import parse_time

F = TypeVar("F", bound=Callable[..., Any])


def pause_options(command: F) -> F:
    """Add the options of every `pause`."""
    options = (
        click.option("--reason", metavar="TEXT", help="Why, shown with every held job."),
        click.option("--for", "duration", metavar="DURATION", help="Resume after this time: 2h."),
        click.option("--until", type=parse_time, metavar="TIME", help="Resume at this time."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def pause(
    context: CommandContext,
    *path: str,
    reason: str | None,
    duration: str | None,
    until: str | None,
) -> None:
    """Pause what the path names, and show the result."""
    given = {"reason": reason, "duration": duration, "until": until}
    body = {key: value for key, value in given.items() if value is not None}
    context.show(context.post(path_to(*path, "pause"), body), _show_pause)


def resume(context: CommandContext, *path: str) -> None:
    """Resume what the path names, and show the result."""
    context.show(context.post(path_to(*path, "resume")), _show_resume)


def describe(pause: Json) -> str:
    """Return who paused it, why and until when."""
    by = f"paused by {pause['paused_by']} at {output.format_time(pause['paused_at'])}"
    until = f" until {output.format_time(pause['until'])}" if pause["until"] else ""
    return f"{by}{until}{': ' + pause['reason'] if pause['reason'] else ''}"


def _name(row: Json) -> str:
    return "the gateway" if row["name"] is None else f"{row['kind']} {row['name']}"


def _show_pause(done: Json) -> None:
    is_ = "would be" if done.get("dry_run") else "is"
    until = f" until {output.format_time(done['until'])}" if done["until"] else ""
    output.print_line(f"{_name(done)} {is_} paused{until}; its jobs stay queued")


def _show_resume(done: Json) -> None:
    if not done["resumed"]:
        output.print_line(f"{_name(done)} was not paused")
        return
    output.print_line(f"{_name(done)} {'would be' if done.get('dry_run') else 'is'} resumed")
