"""`ductile approval`: what pipelines want a person to approve."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import limit_option
from ductile.core.waits.decision import WaitStatus
from ductile.model import JobStatus

approval = Noun("approval", "List, approve and reject what pipelines wait for.")
STATUSES = ("waiting", "approved", "rejected", "expired", "cancelled")
_ID = click.argument("approval_id", metavar="ID")
_COMMENT = click.option("--comment", metavar="TEXT", help="Record this text with the decision.")


@approval.read("list")
@click.option("--status", type=click.Choice(STATUSES), help="Show only approvals in this state.")
@click.option("--pipeline", metavar="NAME", help="Show only approvals of this pipeline.")
@click.option("--all", "every", is_flag=True, help="Also show approvals that have ended.")
@limit_option()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def listing(
    context: CommandContext,
    status: str | None,
    pipeline: str | None,
    every: bool,
    limit: int,
    before: str | None,
) -> None:
    """List approvals that pipelines wait for, newest first."""
    wanted = status or (None if every else WaitStatus.WAITING.value)
    context.show(
        context.get("/approvals", status=wanted, pipeline=pipeline, limit=limit, before=before),
        _show_list,
    )


@approval.read("show")
@_ID
def show(context: CommandContext, approval_id: str) -> None:
    """Show an approval: its text, its pipeline, and the decision."""
    context.show(context.get(path_to("approvals", approval_id)), _show)


@approval.write("approve")
@_ID
@_COMMENT
def approve(context: CommandContext, approval_id: str, comment: str | None) -> None:
    """Approve; the next step of the pipeline runs."""
    _decide(context, approval_id, "approve", comment)


@approval.write("reject")
@_ID
@_COMMENT
def reject(context: CommandContext, approval_id: str, comment: str | None) -> None:
    """Reject; the step of the pipeline fails."""
    _decide(context, approval_id, "reject", comment)


def _decide(context: CommandContext, approval_id: str, action: str, comment: str | None) -> None:
    body = {} if comment is None else {"comment": comment}
    done = context.post(path_to("approvals", approval_id, action), body)
    context.show(done, _show_decision)


def _show_decision(done: dict[str, Any]) -> None:
    verb = "would be" if done.get("dry_run") else "is"
    output.print_line(f"approval {done['id']} {verb} {done['status']}")
    if done["status"] == WaitStatus.APPROVED and done["job_status"] == JobStatus.FAILED:
        output.print_stderr(f"its step failed nevertheless: ductile job why {done['job_id']}")


def _show_list(page: dict[str, Any]) -> None:
    output.print_table(
        page["approvals"],
        {
            "id": "id",
            "title": lambda row: output.clip(row["title"], 60),
            "pipeline": "pipeline",
            "step": "step",
            "status": "status",
            "since": output.time_of("created_at"),
            "until": output.time_of("due_at"),
        },
        empty="no approvals",
    )
    if page["cursor"]:
        output.print_stderr(f"earlier approvals: --before {page['cursor']}")


def _show(row: dict[str, Any]) -> None:
    click.echo(click.style(output.escape(row["title"]), bold=True))
    facts = (
        ("status", row["status"]),
        ("pipeline", f"{row['pipeline']}, step {row['step']}"),
        ("run", row["instance_id"]),
        ("job", row["job_id"]),
        ("since", output.format_time(row["created_at"])),
        ("until", output.format_time(row["due_at"])),
        ("then", row["on_timeout"]),
        ("ended", row["ended_at"] and output.format_time(row["ended_at"])),
        ("by", row["ended_by"]),
        ("comment", row["comment"]),
    )
    for label, value in facts:
        if value:
            output.print_line(f"{label + ':':<9} {value}")
    if row["description"]:
        output.print_section("description", row["description"])
    if row["status"] == WaitStatus.WAITING:
        output.print_line("")
        output.print_line(f"decide: ductile approval approve {row['id']}")
