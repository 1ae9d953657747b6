"""`ductile token`: who may call the API, and what they may do."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext, Noun
from ductile.errors import UsageError

token = Noun("token", "Tokens: who may call the API, and what they may do.")

_expires = click.option("--expires", metavar="DURATION", help="How long it is good: 30d, 12h.")


@token.write("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help="What it may do, as often as needed: '*', jobs:ro, my-plugin:rw.",
)
@_expires
def create(call: CommandContext, name: str, scopes: tuple[str, ...], expires: str | None) -> None:
    """Make a token; it is shown this once."""
    for scope in scopes:
        if "," in scope:
            apart = " ".join(f"--scope {part.strip()}" for part in scope.split(","))
            raise UsageError(f"{scope!r} is no scope; give each by itself: {apart}")
    body = {"name": name, "scopes": list(scopes), "expires_in": expires}
    made = call.act("/tokens", body)
    for warning in () if call.as_json else made["warnings"]:
        output.aside(f"warning: {warning}", fg="yellow")
    call.show(made, _show_secret)


@token.write("rotate")
@click.argument("which", metavar="NAME_OR_ID")
@_expires
def rotate(call: CommandContext, which: str, expires: str | None) -> None:
    """Give a token another secret, shown this once; the old one is void at once."""
    made = call.act(path_to("token", which, "rotate"), {"expires_in": expires})
    call.show(made, _show_secret)


@token.write("revoke")
@click.argument("which", metavar="NAME_OR_ID")
def revoke(call: CommandContext, which: str) -> None:
    """Make a token void at once."""
    call.show(call.act(path_to("token", which, "revoke")), _show_revoked)


@token.read("list")
def listing(call: CommandContext) -> None:
    """List the tokens of the ledger; those of the configuration stand in its files."""
    with call.site.reading() as door:
        page = door.get("/tokens")
    call.show(page, _show_list)


def _show_secret(made: dict[str, Any]) -> None:
    if made.get("dry_run"):
        output.line(f"would make a token {made['name']} with {', '.join(made['scopes'])}")
        return
    click.echo(made["token"])
    until = f"good until {output.when(made['expires_at'])}" if made["expires_at"] else "no end"
    output.aside(f"{made['name']}: {', '.join(made['scopes'])}; {until}. It is not shown again.")


def _show_revoked(done: dict[str, Any]) -> None:
    output.line(f"{'would revoke' if done.get('dry_run') else 'revoked'} {done['name']}")


def _show_list(page: dict[str, Any]) -> None:
    output.table(
        ("id", "name", "scopes", "created", "expires", "revoked"),
        (
            (
                row["id"],
                row["name"],
                " ".join(row["scopes"]),
                output.when(row["created_at"]),
                output.when(row["expires_at"]),
                output.when(row["revoked_at"]),
            )
            for row in page["tokens"]
        ),
        empty="no tokens; make one: ductile token create NAME --scope jobs:ro",
    )
