"""`ductile audit`: who did what, when and from where."""

from __future__ import annotations

import json
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import limit_option, parse_since
from ductile.core.values.suggest import did_you_mean
from ductile.errors import NotFound, UsageError

audit = Noun("audit", "List actions of operators and failed logins.", default="list")


@audit.read("list")
@click.option("--actor", metavar="WHO", help="Only actions of token:NAME or user:NAME.")
@click.option("--token", "holder", metavar="NAME", help="Only what this token did.")
@click.option("--action", metavar="WHAT", help="Only this action, such as token.create or token.")
@click.option(
    "--since", type=parse_since, metavar="D", help="Only entries since then (2h, or ISO 8601)."
)
@limit_option()
def listing(
    context: CommandContext,
    actor: str | None,
    holder: str | None,
    action: str | None,
    since: str | None,
    limit: int,
) -> None:
    """List actions of operators and failed logins, newest first.

    With --token, the jobs and pipelines that a lease started are listed too.
    """
    if actor is not None and holder is not None:
        raise UsageError("--actor and --token cannot be combined")
    if holder is not None:
        actor = f"token:{holder}"
    with context.target.open_reader() as api:
        page = api.get("/audit", actor=actor, action=action, since=since, limit=limit)
        if holder is not None and not page["entries"]:
            _check_token(api, holder)
    context.show(page, _show)


def _check_token(api: GatewayApi, name: str) -> None:
    """Raise `NotFound` unless a token has this name, or had it and has acted."""
    config = api.get("/config/view")["config"]
    known = {each["name"] for each in api.get("/tokens")["tokens"]}
    known |= {each["name"] for each in [*config["tokens"], *config["api"]["auth"]["tokens"]]}
    if name in known or api.get("/audit", actor=f"token:{name}", limit=1)["entries"]:
        return
    text = f"there is no token {name!r}, and none of this name has acted"
    raise NotFound(f"{text}{did_you_mean(name, known)}")


def _show(page: dict[str, Any]) -> None:
    output.print_table(
        page["entries"],
        {
            "time": output.time_of("created_at"),
            "actor": "actor",
            "from": "source",
            "action": "action",
            "target": lambda row: row["target"] or "",
            "details": lambda row: "" if row["details"] is None else json.dumps(row["details"]),
        },
        empty="no entries",
    )
