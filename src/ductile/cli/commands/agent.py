"""`ductile agent`: known agents, their capabilities and their reminders."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import WholeNumber, limit_option, parse_seconds, read_json
from ductile.errors import NotFound, UsageError

agent = Noun("agent", "List agents and manage their reminders.", default="list")

_limit = limit_option(1000)


@agent.read("list")
@click.option("--live", is_flag=True, help="Show only live agents.")
@click.option("--after", metavar="ID", help="Continue after this agent.")
@_limit
def listing(context: CommandContext, live: bool, after: str | None, limit: int) -> None:
    """List known agents and whether they are alive."""
    page = context.get(
        "/gateway/heartbeats", live="true" if live else None, after=after, limit=limit
    )
    context.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        page["agents"],
        {
            "agent": "agent_id",
            "cluster": "cluster_id",
            "state": "state",
            "last seen": lambda row: output.format_time(row["received_at"] or row["last_seen_at"]),
            "capabilities": _capabilities,
        },
        empty="no agents; an agent is listed after its first POST to /gateway/heartbeat",
    )
    _show_cursor(page)


def _capabilities(row: Json) -> str:
    known: dict[str, Any] = row["capabilities"] or {}
    words = [str(known[key]) for key in ("agent_type", "capability_version") if key in known]
    return " ".join([*words, *map(str, known.get("capabilities", ()))])


def _show_cursor(page: Json) -> None:
    if page["cursor"] is not None:
        output.print_stderr(f"more rows: --after {page['cursor']}")


@agent.read("show")
@click.argument("agent_id", metavar="ID")
def show(context: CommandContext, agent_id: str) -> None:
    """Show one agent, its capabilities and its reminders."""
    with context.target.open_reader() as api:
        rows = api.get("/gateway/heartbeats", agent_id=agent_id)["agents"]
        reminders = api.get("/gateway/cron", agent_id=agent_id)["reminders"]
    if not rows and not reminders:
        raise NotFound(f"there is no agent {agent_id!r}")
    unknown = dict.fromkeys(("cluster_id", "last_seen_at", "received_at", "capabilities"))
    row = rows[0] if rows else {"agent_id": agent_id, **unknown, "state": "never seen"}
    context.show({**row, "reminders": reminders}, _show_one)


def _show_one(row: Json) -> None:
    name = click.style(output.escape(row["agent_id"]), bold=True)
    click.echo(f"{name} {output.format_status(row['state'])}")
    output.print_table(
        [row],
        {
            "cluster": "cluster_id",
            "reported": output.time_of("last_seen_at"),
            "received": output.time_of("received_at"),
            "capabilities": _capabilities,
        },
    )
    if row["reminders"]:
        _show_reminders({"reminders": row["reminders"], "cursor": None})


@agent.write("remind")
@click.argument("agent_id", metavar="ID")
@click.option(
    "--in",
    "delay",
    type=parse_seconds,
    metavar="D",
    help="Fire after this duration, such as 5m or 1h30m.",
)
@click.option(
    "--delay-ms", type=WholeNumber(1), metavar="N", help="Fire after this many milliseconds."
)
@click.option("--cron", metavar="RULE", help="Fire repeatedly by this 5-field cron rule, in UTC.")
@click.option("--payload", metavar="JSON|@FILE|-", help="Payload of the reminder, a JSON object.")
def remind(
    context: CommandContext,
    agent_id: str,
    delay: float | None,
    delay_ms: int | None,
    cron: str | None,
    payload: str | None,
) -> None:
    """Create a reminder for an agent.

    The agent receives the payload as an event of the topic agent:ID:scheduled. Without a running
    gateway the reminder is stored, and fires when a gateway runs.
    """
    if sum(value is not None for value in (delay, delay_ms, cron)) != 1:
        raise UsageError("give exactly one of --in, --delay-ms and --cron")
    if delay is not None:
        delay_ms = max(round(delay * 1000), 0)
    fields = {
        "agent_id": agent_id,
        "delay_ms": delay_ms,
        "schedule": cron,
        "payload": read_json(payload),
    }
    body = {key: value for key, value in fields.items() if value is not None}
    context.show(context.post("/gateway/cron", body), _show_created)


def _show_created(reminder: Json) -> None:
    done = (
        "would create a reminder"
        if reminder.get("dry_run")
        else f"created reminder {reminder['id']}"
    )
    rule = f", then by cron {reminder['schedule']} (UTC)" if reminder["schedule"] else ""
    fires_at = output.format_time(reminder["next_fire_at"])
    output.print_line(f"{done} for {reminder['agent_id']}; it fires at {fires_at}{rule}")


@agent.read("reminders")
@click.option("--agent", "agent_id", metavar="ID", help="Show only this agent's reminders.")
@click.option("--after", type=WholeNumber(0), metavar="ID", help="Continue after this reminder.")
@_limit
def reminders(context: CommandContext, agent_id: str | None, after: int | None, limit: int) -> None:
    """List pending reminders."""
    context.show(
        context.get("/gateway/cron", agent_id=agent_id, after=after, limit=limit), _show_reminders
    )


def _show_reminders(page: Json) -> None:
    output.print_table(
        page["reminders"],
        {
            "reminder": "id",
            "agent": "agent_id",
            "fires": output.time_of("next_fire_at"),
            "rule": lambda row: "once" if row["is_one_time"] else row["schedule"],
            "payload": lambda row: _compact(row["payload"]),
        },
        empty="no reminders; create one: ductile agent remind ID --in 5m",
    )
    _show_cursor(page)


def _compact(payload: Any) -> str:
    import json

    return json.dumps(payload, ensure_ascii=False)


@agent.write("forget")
@click.argument("reminder_id", metavar="REMINDER_ID", type=WholeNumber(1))
def forget(context: CommandContext, reminder_id: int) -> None:
    """Delete a reminder."""
    deleted = context.post(path_to("gateway", "cron", str(reminder_id), "forget"))
    context.show(deleted, _show_deleted)


def _show_deleted(row: Json) -> None:
    done = "would delete" if row.get("dry_run") else "deleted"
    output.print_line(f"{done} reminder {row['id']} of {row['agent_id']}")
