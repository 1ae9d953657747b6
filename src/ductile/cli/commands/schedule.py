"""`ductile schedule`: list, explain, pause and resume schedules."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi, Json, path_to
from ductile.cli.command import CommandContext, Noun, explain_unloaded, has_schedule
from ductile.cli.options import SCHEDULE, WholeNumber, parse_since
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, UsageError

LATE = timedelta(minutes=1)
"""A delay of the fire after its occurrence that is shown."""

schedule = Noun("schedule", "List, explain, pause and resume schedules.", default="list")


@schedule.read("list")
def listing(context: CommandContext) -> None:
    """List schedules with their next and last runs.

    Reminders of agents follow, as agent:ID.
    """
    with context.target.open_reader() as api:
        page = api.get("/scheduler/jobs")
        context.warn_of_difference(api)
    context.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        [*page["schedules"], *map(_as_schedule, page["reminders"])],
        {
            "schedule": _name,
            "rule": "rule",
            "state": "state",
            "next run": output.time_of("next_run"),
            "last fire": output.time_of("last_fire"),
            "last success": output.time_of("last_success"),
            "note": "reason",
        },
        empty="no schedules; define one under `schedules:` of a plugin or pipeline in the config",
    )


def _name(row: Json) -> str:
    return f"agent:{row['agent']}" if "agent" in row else f"{row['plugin']}/{row['schedule']}"


def _as_schedule(reminder: Json) -> Json:
    return {
        "agent": reminder["agent_id"],
        "rule": "once" if reminder["is_one_time"] else f"cron {reminder['schedule']} (UTC)",
        "state": "active",
        "next_run": reminder["next_fire_at"],
        "last_fire": None,
        "last_success": None,
        "reason": f"reminder {reminder['id']}",
    }


@schedule.read("next")
@click.argument("name", metavar="NAME[/ID]", type=SCHEDULE)
@click.option(
    "--count",
    type=WholeNumber(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of fire times.",
)
def next_fires(context: CommandContext, name: str, count: int) -> None:
    """Show the next fire times of a plugin's schedules.

    With NAME/ID, those of one schedule. A time that can change is marked with what it depends on:
    `every` counts from the end of the previous run. Without a running gateway they are the times of
    a gateway that starts now.
    """
    with context.target.open_reader() as api:
        with _explain_unloaded(context, name), context.reading_gateway(api):
            page = api.get("/scheduler/next", name=name, count=count)
        page["held"] = [] if page["fires"] else _block_reasons(api, name)
    context.show(page, _show_fires)


def _block_reasons(api: GatewayApi, name: str) -> list[str]:
    """Return why schedules have no fire time."""
    rows = _find(api, name)
    return [f"{_name(row)}: {row['reason'] or row['state']}" for row in rows]


def _show_fires(page: Json) -> None:
    output.print_table(
        page["fires"],
        {
            "local time": lambda fire: fire["local"].replace("T", " "),
            "zone": "zone",
            "utc": "fires_at",
            "schedule": "schedule",
            "depends on": "depends_on",
        },
        empty="no fire times",
    )
    _show_held(page, "fires")


@schedule.read("explain")
@click.argument("name", metavar="NAME[/ID]", type=SCHEDULE)
@click.option(
    "--since",
    type=parse_since,
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Start of the period (24h, or ISO 8601).",
)
def explain(context: CommandContext, name: str, since: str) -> None:
    """Show which occurrences fired, and why others did not."""
    opened = context.target.open_reader()
    with opened as api, _explain_unloaded(context, name), context.reading_gateway(api):
        page = api.get("/scheduler/explain", name=name, since=since)
        page["held"] = [] if page["slots"] else _block_reasons(api, name)
    context.show(page, _show_occurrences)


def _show_occurrences(page: Json) -> None:
    output.print_table(
        page["slots"],
        {
            "occurrence": lambda slot: slot["local"].replace("T", " "),
            "schedule": "schedule",
            "fired": _fired,
            "job or reason": lambda slot: (
                f"{slot['job_id']} {slot['status'] or ''}" if slot["fired"] else slot["why"]
            ),
        },
        empty="no occurrences in this period",
    )
    _show_held(page, "slots")


def _show_held(page: Json, rows: str) -> None:
    """Print why there are no rows."""
    for reason in () if page[rows] else page["held"]:
        output.print_line(reason)


def _fired(slot: Json) -> str:
    from ductile.clock import from_text

    if not slot["fired"]:
        return "not fired"
    late = from_text(slot["decided_at"]) - from_text(slot["slot"]) > LATE
    return f"fired {output.format_time(slot['decided_at'])}" if late else "fired"


@schedule.write("pause")
@click.argument("name", metavar="NAME/ID", type=SCHEDULE)
def pause(context: CommandContext, name: str) -> None:
    """Pause a schedule until it is resumed.

    Until then, its occurrences are recorded as not fired.
    """
    _set(context, name, "pause")


@schedule.write("resume")
@click.argument("name", metavar="NAME/ID", type=SCHEDULE)
def resume(context: CommandContext, name: str) -> None:
    """Resume a paused schedule."""
    _set(context, name, "resume")


def _set(context: CommandContext, name: str, verb: str) -> None:
    with context.open_api() as api:
        with _explain_unloaded(context, name):
            row = _find_one(api, name, context)
        result = context.post_to(api, path_to("scheduler", row["plugin"], row["schedule"], verb))
    context.show({**result, "was": row["state"]}, _show_pause)


def _show_pause(result: Json) -> None:
    wanted = "paused" if result["paused"] else "resumed"
    would = "would be" if result.get("dry_run") else "is"
    name = f"{result['plugin']}/{result['schedule']}"
    output.print_line(f"{name} {would} {wanted} (was {result['was']})")


def _explain_unloaded(context: CommandContext, name: str) -> AbstractContextManager[None]:
    return explain_unloaded(context, name, "schedule", has_schedule)


def _find(api: GatewayApi, name: str) -> list[Any]:
    owner, _, id = name.partition("/")
    rows = [row for row in api.get("/scheduler/jobs")["schedules"] if id in ("", row["schedule"])]
    found = [row for row in rows if row["plugin"] == owner]
    return found or [row for row in rows if row["pipeline"] == owner]


def _find_one(api: GatewayApi, name: str, context: CommandContext) -> Json:
    found = _find(api, name)
    if not found:
        context.warn_of_difference(api)
        names = [_name(row) for row in api.get("/scheduler/jobs")["schedules"]]
        raise NotFound(f"there is no schedule {name!r}{did_you_mean(name, names)}")
    if len(found) > 1:
        ids = ", ".join(map(_name, found))
        raise UsageError(f"{name} has several schedules; choose one: {ids}")
    row: Json = found[0]
    return row
