"""`ductile queue`: queued and running jobs."""

from __future__ import annotations

from typing import Any

from ductile.cli import output
from ductile.cli.command import CommandContext, Noun
from ductile.cli.display import is_refusal, print_jobs, print_reload_hint
from ductile.cli.explain import hide_switches
from ductile.cli.options import limit_option

queue = Noun("queue", "List queued and running jobs.", default="list")


@queue.read("list")
@limit_option()
def listing(context: CommandContext, limit: int) -> None:
    """List queued and running jobs, in queue order."""
    with context.target.open_reader() as api:
        page = api.get("/queue", limit=limit)
    context.show(page, _show)
    if any(is_refusal(row["waits_for"]) for row in page["jobs"]):
        print_reload_hint(api)


def _show(page: dict[str, Any]) -> None:
    if jobs := hide_switches(page["jobs"]):
        print_jobs(jobs, empty="")
    output.print_line(f"{page['queue_depth']} queued, {page['running']} running")
