"""`ductile queue`: what waits and what runs."""

from __future__ import annotations

from typing import Any

from ductile.cli import output
from ductile.cli.command import CommandContext, Noun
from ductile.cli.commands.job import hint_at_reload, is_refused, show_jobs
from ductile.cli.options import limited

queue = Noun("queue", "List queued and running jobs.", default="list")


@queue.read("list")
@limited()
def listing(call: CommandContext, limit: int) -> None:
    """List queued and running jobs, in queue order."""
    with call.site.reading() as door:
        page = door.get("/queue", limit=limit)
    call.show(page, _show)
    if any(is_refused(row["waits_for"]) for row in page["jobs"]):
        hint_at_reload(door)


def _show(page: dict[str, Any]) -> None:
    if page["jobs"]:
        show_jobs(page["jobs"], empty="")
    output.line(f"{page['queue_depth']} queued, {page['running']} running")
