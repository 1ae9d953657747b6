"""`ductile system relays`, `system resend`: what is on its way to other gateways."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.cli.options import DELIVERY_STATUS, limited
from ductile.errors import UsageError


@system.read("relays")
@click.option("--status", type=DELIVERY_STATUS, help="Only those in this state.")
@click.option("--instance", metavar="NAME", help="Only those for this gateway.")
@limited()
def relays(call: CommandContext, status: str | None, instance: str | None, limit: int) -> None:
    """List the events that go to other gateways, the newest first."""
    with call.site.reading() as door:
        page = door.get("/relays", status=status, instance=instance, limit=limit)
    call.show(page, _show)


@system.write("resend")
@click.argument("relay_id", metavar="ID", required=False)
@click.option("--all-dead", is_flag=True, help="Every one that was given up.")
def resend(call: CommandContext, relay_id: str | None, all_dead: bool) -> None:
    """Send a failed or dead event to its gateway again, now."""
    if (relay_id is None) is not all_dead:
        raise UsageError("name one relay, or say --all-dead")
    if relay_id is not None:
        call.show(call.act(path_to("relay", relay_id, "retry")), _show_one)
    else:
        call.show(call.act("/relays/retry"), _show_many)


def _show(page: dict[str, Any]) -> None:
    output.table(
        ("id", "to", "event", "status", "failed", "next", "error"),
        (
            (
                row["id"],
                row["instance"],
                row["event_type"],
                row["status"],
                row["attempt_count"],
                output.when(row["next_retry_at"]),
                row["error_detail"],
            )
            for row in page["relays"]
        ),
        empty="nothing was relayed",
    )


def _show_one(done: dict[str, Any]) -> None:
    output.line(f"{'would send' if done.get('dry_run') else 'sending'} {done['id']} again")


def _show_many(done: dict[str, Any]) -> None:
    verb = "would send" if done.get("dry_run") else "sending"
    more = "; more are dead, say it again" if done["more"] else ""
    output.line(f"{verb} {output.count(done['count'], 'relay')} again{more}")
