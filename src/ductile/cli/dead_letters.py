"""What the commands that discard dead deliveries and dead relays share."""

from __future__ import annotations

import click

from ductile.cli.client import Json
from ductile.cli.command import CommandContext
from ductile.cli.options import parse_since

until_option = click.option(
    "--until",
    type=parse_since,
    metavar="TIME",
    help="Only those attempted before then (7d, or ISO 8601).",
)


def discard_all(context: CommandContext, path: str, until: str | None, key: str) -> Json:
    """Discard all dead rows, in as many requests as are needed; a dry run makes one."""
    body = {} if until is None else {"until": until}
    with context.open_api() as api:
        done = context.post_to(api, path, body)
        while done["more"] and not context.dry_run:
            rest = context.post_to(api, path, body)
            found = [*done[key], *rest[key]]
            done = {**rest, key: found, "count": len(found)}
    return done
