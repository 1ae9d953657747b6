"""`ductile schedule`: what comes next, what fired, why something did not; pause and resume."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Door, Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import SCHEDULE, Whole, since
from ductile.errors import NotFound, UsageError

LATE = timedelta(minutes=1)
"""How long after its slot a fire is told with its own time."""

schedule = Noun("schedule", "List, explain, pause and resume schedules.", default="list")


@schedule.read("list")
def listing(call: CommandContext) -> None:
    """List schedules with their next and last runs.

    Reminders of agents follow, as agent:ID.
    """
    with call.site.reading() as door:
        page = door.get("/scheduler/jobs")
    call.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.table(
        ("schedule", "rule", "state", "next run", "last fire", "last success", "note"),
        [*map(_entry, page["schedules"]), *map(_reminder, page["reminders"])],
        empty="no schedules; define one under a plugin's `schedules:` in the config",
    )


def _entry(row: Json) -> tuple[Any, ...]:
    return (
        f"{row['plugin']}/{row['schedule']}",
        row["rule"],
        row["state"],
        output.when(row["next_run"]),
        output.when(row["last_fire"]),
        output.when(row["last_success"]),
        row["reason"],
    )


def _reminder(row: Json) -> tuple[Any, ...]:
    rule = "once" if row["is_one_time"] else f"cron {row['schedule']} (UTC)"
    fires, note = output.when(row["next_fire_at"]), f"reminder {row['id']}"
    return f"agent:{row['agent_id']}", rule, "active", fires, None, None, note


@schedule.read("next")
@click.argument("name", metavar="NAME[/ID]", type=SCHEDULE)
@click.option(
    "--count",
    type=Whole(1, 1000),
    default=20,
    show_default=True,
    help="Maximum number of fire times.",
)
def coming(call: CommandContext, name: str, count: int) -> None:
    """Show the next fire times of a plugin's schedules.

    With NAME/ID, those of one schedule. The times assume that nothing delays a job and, for
    `every`, that each run ends at once. Without a running gateway they are the times of a
    gateway that starts now.
    """
    with call.site.reading() as door:
        page = door.get("/scheduler/next", name=name, count=count)
        page["held"] = [] if page["fires"] else _held(door, name)
    call.show(page, _show_fires)


def _held(door: Door, name: str) -> list[str]:
    """Why entries have no coming fire."""
    rows = _entries(door, name)
    return [f"{row['plugin']}/{row['schedule']}: {row['reason'] or row['state']}" for row in rows]


def _show_fires(page: Json) -> None:
    output.table(
        ("local time", "zone", "utc", "schedule"),
        (
            (fire["local"].replace("T", " "), fire["zone"], fire["fires_at"], fire["schedule"])
            for fire in page["fires"]
        ),
        empty="\n".join(["no fire times", *page["held"]]),
    )


@schedule.read("explain")
@click.argument("name", metavar="NAME[/ID]", type=SCHEDULE)
@click.option(
    "--since",
    type=since,
    default="24h",
    show_default=True,
    metavar="TIME",
    help="Start of the period (24h, or ISO 8601).",
)
def explain(call: CommandContext, name: str, since: str) -> None:
    """Show which occurrences fired, and why others did not."""
    with call.site.reading() as door:
        page = door.get("/scheduler/explain", name=name, since=since)
    call.show(page, _show_slots)


def _show_slots(page: Json) -> None:
    output.table(
        ("occurrence", "schedule", "fired", "job or reason"),
        (
            (
                slot["local"].replace("T", " "),
                slot["schedule"],
                _fired(slot),
                f"{slot['job_id']} {slot['status'] or ''}" if slot["fired"] else slot["why"],
            )
            for slot in page["slots"]
        ),
        empty="no occurrences in this period",
    )


def _fired(slot: Json) -> str:
    from ductile.clock import from_text

    if not slot["fired"]:
        return "not fired"
    late = from_text(slot["decided_at"]) - from_text(slot["slot"]) > LATE
    return f"fired {output.when(slot['decided_at'])}" if late else "fired"


@schedule.write("pause")
@click.argument("name", metavar="NAME/ID", type=SCHEDULE)
def pause(call: CommandContext, name: str) -> None:
    """Pause a schedule until it is resumed.

    Its occurrences are recorded as not fired meanwhile.
    """
    _set(call, name, "pause")


@schedule.write("resume")
@click.argument("name", metavar="NAME/ID", type=SCHEDULE)
def resume(call: CommandContext, name: str) -> None:
    """Resume a paused schedule."""
    _set(call, name, "resume")


def _set(call: CommandContext, name: str, verb: str) -> None:
    with call.place() as door:
        row = _one(door, name)
        answer = call.send(door, path_to("scheduler", row["plugin"], row["schedule"], verb))
    call.show({**answer, "was": row["state"]}, _show_pause)


def _show_pause(answer: Json) -> None:
    wanted = "paused" if answer["paused"] else "resumed"
    would = "would be" if answer.get("dry_run") else "is"
    name = f"{answer['plugin']}/{answer['schedule']}"
    output.line(f"{name} {would} {wanted} (was {answer['was']})")


def _entries(door: Door, name: str) -> list[Any]:
    plugin, _, id = name.partition("/")
    rows = door.get("/scheduler/jobs")["schedules"]
    return [row for row in rows if row["plugin"] == plugin and id in ("", row["schedule"])]


def _one(door: Door, name: str) -> Json:
    found = _entries(door, name)
    if not found:
        raise NotFound(f"there is no schedule {name!r}")
    if len(found) > 1:
        ids = ", ".join(f"{row['plugin']}/{row['schedule']}" for row in found)
        raise UsageError(f"{name} has several schedules; choose one: {ids}")
    row: Json = found[0]
    return row
