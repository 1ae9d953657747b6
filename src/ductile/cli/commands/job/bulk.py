"""Retrying, cancelling or acknowledging all jobs that match filters."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext
from ductile.cli.display import Row
from ductile.cli.options import (
    PIPELINE,
    PLUGIN,
    PRODUCER,
    STATUS,
    check_pipeline,
    check_plugin,
    limit_option,
    parse_since,
)
from ductile.errors import UsageError

WORDS = {
    "retry": ("would retry", "retrying"),
    "cancel": ("would cancel", "cancelled"),
    "acknowledge": ("would acknowledge", "acknowledged"),
}
LEFT_OUT = "acknowledged and cancelled jobs are left out; add --acknowledged to retry these"
ACKNOWLEDGED = click.option(
    "--acknowledged/--not-acknowledged",
    default=None,
    help="Only jobs that were acknowledged or cancelled; or no such jobs.",
)


def bulk_options(command: Any) -> Any:
    """Add the filters of a bulk action."""
    for option in (
        limit_option(100),
        click.option("--until", metavar="T", type=parse_since, help="Jobs created before T."),
        click.option(
            "--since", metavar="T", type=parse_since, help="Jobs created since T (1h, a time)."
        ),
        ACKNOWLEDGED,
        click.option("--submitted-by", type=PRODUCER, help="Jobs from this producer."),
        click.option("--status", type=STATUS, help="Jobs in this state."),
        click.option("--command", help="Jobs of this command."),
        click.option("--pipeline", type=PIPELINE, help="Steps of this pipeline."),
        click.option("--plugin", type=PLUGIN, help="Jobs of this plugin."),
    ):
        command = option(command)
    return command


def has_filters(typed_id: str | None, filters: Row) -> bool:
    """Whether a bulk action is meant; `UsageError` if both or neither are given."""
    is_bulk = any(value is not None for name, value in filters.items() if name != "limit")
    if is_bulk is (typed_id is not None):
        raise UsageError(
            "give one job ID, or filters such as --pipeline or --since; --dry-run lists the jobs"
        )
    return is_bulk


def run_bulk(context: CommandContext, action: str, filters: Row) -> int:
    """Act on all jobs that match; exit code 1 if one of them was refused."""
    given = {name: value for name, value in filters.items() if value is not None}
    limit = given.pop("limit")
    with context.open_api() as api:
        result = context.post_to(api, f"/jobs/{action}", {"filter": given, "limit": limit})
        if not result["count"]:
            check_plugin(api, given.get("plugin"))
            check_pipeline(api, given.get("pipeline"))
    context.show(result, lambda result: _show(result, WORDS[action]))
    if action == "retry" and not result["count"] and "acknowledged" not in given:
        output.print_stderr(LEFT_OUT)
    return 1 if result["refused"] else 0


def _show(result: Row, words: tuple[str, str]) -> None:
    count, planned = result["count"], result.get("dry_run")
    output.print_line(f"{words[0 if planned else 1]} {count} {'job' if count == 1 else 'jobs'}")
    for job_id in result["jobs"] if planned else ():
        output.print_line(f"  {job_id}")
    for refusal in result["refused"]:
        output.print_stderr(f"job {refusal['job_id']}: {refusal['error']}")
    if result["more"]:
        output.print_stderr("more jobs match; run the command again, or pass a larger --limit")
