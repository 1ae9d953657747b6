"""`ductile job`: what ran, how it ended, what it said."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from ductile.cli import output
from ductile.cli.action import Call, Noun, read
from ductile.cli.client import path_to
from ductile.cli.options import LIMIT, STATUS, since

job = Noun("job", "Jobs: what ran, how it ended, what it said.")

Row = Mapping[str, Any]


@job.read("list")
@click.option("--status", type=STATUS, help="Only jobs in this state.")
@click.option("--plugin", help="Only jobs of this plugin.")
@click.option("--command", help="Only jobs of this command.")
@click.option("--limit", type=LIMIT, default=50, show_default=True)
@click.option("--before", metavar="CURSOR", help="Go on after a page, by its cursor.")
def listing(call: Call, **filters: Any) -> None:
    """List jobs, the newest first."""
    with call.site.reading() as door:
        page = door.get("/jobs", **filters)
    call.show(page, _show_page)


def _show_page(page: Row) -> None:
    show_jobs(page["jobs"], empty="no jobs")
    if page.get("cursor"):
        output.aside(f"more: --before {page['cursor']}")


def show_jobs(rows: list[Row], *, empty: str) -> None:
    output.table(
        ("job", "plugin", "command", "status", "attempt", "created", "note"),
        (
            (
                row["job_id"],
                row["plugin"],
                row["command"],
                row["status"],
                f"{row['attempt']}/{row['max_attempts']}",
                output.when(row["created_at"]),
                _note(row),
            )
            for row in rows
        ),
        empty=empty,
    )


def _note(row: Row) -> str:
    return "; ".join(filter(None, (row.get("waits_for"), row.get("last_error"))))


@job.read("inspect")
@click.argument("job_id", metavar="ID")
def inspect(call: Call, job_id: str) -> None:
    """Show one job: its payload, attempts, changes of state and result."""
    with call.site.reading() as door:
        found = door.get(path_to("job", job_id))
    call.show(found, _show_job)


def _show_job(found: Row) -> None:
    output.line(f"{found['plugin']} {found['command']}", bold=True)
    click.echo(f"{output.coloured(found['status'])}  {output.safe(_note(found))}".rstrip())
    facts = {
        "job": found["job_id"],
        "attempt": f"{found['attempt']} of {found.get('max_attempts', '?')}",
        "submitted by": found["submitted_by"],
        "created": output.when(found["created_at"]),
        "started": output.when(found.get("started_at")),
        "completed": output.when(found.get("completed_at")),
        "dedupe key": found.get("dedupe_key"),
        "parent": found.get("parent_job_id"),
        "source event": found.get("source_event_id"),
    }
    for name, fact in facts.items():
        if fact not in (None, "-"):
            output.line(f"{name + ':':<14} {fact}")
    output.section("payload", output.value(found.get("payload")))
    for attempt in found["attempts"]:
        _show_attempt(attempt)
    for change in found["transitions"]:
        why = f"  {change['reason']}" if change["reason"] else ""
        states = f"{change['from_status']} -> {change['to_status']}"
        output.line(f"{output.when(change['created_at'])}  {states}{why}")


def _show_attempt(attempt: Row) -> None:
    took = output.span((attempt["duration_ms"] or 0) / 1000)
    title = click.style(f"attempt {attempt['attempt']}", bold=True)
    click.echo(f"{title}  {output.coloured(attempt['status'])} in {took}")
    show_words(attempt)
    if attempt["result"] is not None:
        output.section("response", output.value(attempt["result"]))


def show_words(attempt: Row) -> None:
    """What an attempt said: its error, its log lines, and stdout where that was no response."""
    if attempt["last_error"]:
        output.section("error", attempt["last_error"])
    lines = attempt["logs"] if isinstance(attempt["logs"], list) else []
    if lines:
        output.section("logs", "\n".join(f"{x['level']:<5} {x['message']}" for x in lines))
    for stream in ("stdout", "stderr"):
        if attempt[stream]:
            output.section(stream, attempt[stream])


def _log_options(command: Any) -> Any:
    for option in (
        click.option("--before", metavar="CURSOR", help="Go on after a page, by its cursor."),
        click.option("--limit", type=LIMIT, default=50, show_default=True),
        click.option(
            "--since",
            type=since,
            metavar="TIME",
            help="Only attempts that ended after (1h, a time).",
        ),
        click.option("--status", type=STATUS, help="Only attempts in this state."),
    ):
        command = option(command)
    return command


@job.read("logs")
@click.argument("job_id", metavar="[ID]", required=False)
@click.option("--plugin", help="Only attempts of this plugin.")
@_log_options
def logs(call: Call, **filters: Any) -> None:
    """Show what attempts said, the newest last."""
    _logs(call, filters)


@read("logs")
@click.argument("plugin", required=False)
@_log_options
def plugin_logs(call: Call, **filters: Any) -> None:
    """Show what attempts of a plugin, or of all, said; the newest last."""
    _logs(call, filters)


def _logs(call: Call, filters: Mapping[str, Any]) -> None:
    with call.site.reading() as door:
        page = door.get("/job-logs", **filters)
    call.show(page, _show_logs)


def _show_logs(page: Row) -> None:
    if page.get("cursor"):
        output.aside(f"earlier: --before {page['cursor']}")
    for entry in reversed(page["logs"]):
        took = output.span((entry["duration_ms"] or 0) / 1000)
        head = f"{output.when(entry['completed_at'])}  {entry['plugin']} {entry['command']}"
        tail = f"in {took}, attempt {entry['attempt']}, job {entry['job_id']}"
        click.echo(f"{output.safe(head)}  {output.coloured(entry['status'])}  {tail}")
        show_words(entry)
    if not page["logs"]:
        output.line("no attempts")
