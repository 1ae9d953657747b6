"""`ductile alert`: list, show, test and silence alert rules."""

from __future__ import annotations

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun

alert = Noun("alert", "List, show, test and silence alerts.", default="list")


@alert.read("list")
def listing(context: CommandContext) -> None:
    """List the alert rules with their state."""
    with context.target.open_reader() as api:
        page = api.get("/alerts")
        context.warn_of_difference(api)
    context.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        page["alerts"],
        {
            "rule": "rule",
            "state": _state,
            "since": output.time_of("since"),
            "on": lambda row: ", ".join(row["on"]),
            "to": "to",
            "silenced until": output.time_of("silenced_until"),
            "last error": "last_error",
        },
        empty="no alert rules; define one under `alerts:` in the config",
    )
    for row in page["undelivered"]:
        at = output.format_time(row["created_at"])
        output.print_line(
            f"not delivered: alert {row['rule']} of {at} to {row['to']}: {row['error']}"
        )


def _state(row: Json) -> str:
    count = row[row["state"]] if row["state"] != "ok" else 0
    return f"{row['state']} ({count})" if count > 1 else str(row["state"])


@alert.read("show")
@click.argument("name")
def show(context: CommandContext, name: str) -> None:
    """Show an alert rule, what fails, and its last messages."""
    context.show(context.get(path_to("alerts", name)), _show_rule)


def _show_rule(rule: Json) -> None:
    output.print_line(f"{rule['rule']}: {rule['state']}")
    output.print_line(f"on {', '.join(rule['on'])}, to {rule['target']} {rule['to']}")
    settings = ("after", "for", "wait", "repeat", "group")
    output.print_line(", ".join(f"{key} {rule[key]}" for key in settings))
    if rule["silenced_until"]:
        until = output.format_time(rule["silenced_until"])
        output.print_line(f"silenced until {until} by {rule['silenced_by']}")
    output.print_line("")
    output.print_table(
        rule["groups"],
        {
            "group": "group",
            "state": lambda row: "flapping" if row["flapping"] else row["state"],
            "since": output.time_of("since"),
            "count": "count",
            "first error": "first_error",
            "last message": output.time_of("notified_at"),
        },
        empty="nothing has failed yet",
    )
    if rule["messages"]:
        output.print_line("")
        output.print_table(
            rule["messages"][:10],
            {
                "message": "news",
                "group": "alert_group",
                "at": output.time_of("created_at"),
                "job": lambda row: row["run_id"] or row["job_id"],
                "delivery": lambda row: row["run_status"] or row["job_status"],
            },
        )


@alert.write("test")
@click.argument("name")
def test(context: CommandContext, name: str) -> None:
    """Send a test message to the target of a rule."""
    context.show(context.post(path_to("alerts", name, "test")), _show_test)


def _show_test(sent: Json) -> None:
    if sent.get("dry_run"):
        output.print_line(f"a test message of {sent['rule']} would be sent to {sent['to']}")
        return
    id = sent["run_id"] or sent["job_id"]
    output.print_line(f"a test message of {sent['rule']} is queued for {sent['to']}: {id}")


@alert.write("silence")
@click.argument("name")
@click.argument("duration")
def silence(context: CommandContext, name: str, duration: str) -> None:
    """Send no messages of a rule for a time, such as 2h.

    What still fails when the silence ends is reported then.
    """
    done = context.post(path_to("alerts", name, "silence"), {"duration": duration})
    context.show(done, _show_silence)


@alert.write("unsilence")
@click.argument("name")
def unsilence(context: CommandContext, name: str) -> None:
    """Send the messages of a silenced rule again."""
    context.show(context.post(path_to("alerts", name, "unsilence")), _show_silence)


def _show_silence(done: Json) -> None:
    is_ = "would be" if done.get("dry_run") else "is"
    if done["silenced_until"]:
        until = output.format_time(done["silenced_until"])
        output.print_line(f"{done['rule']} {is_} silenced until {until}")
    else:
        output.print_line(f"{done['rule']} {is_} no longer silenced")
