"""`ductile token`: who may call the API, and what they may do."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext, Noun
from ductile.errors import UsageError

token = Noun("token", "Create, list, rotate and revoke API tokens.")

_expires = click.option(
    "--expires", metavar="DURATION", help="Lifetime, such as 30d or 12h. Default: unlimited."
)


@token.write("create")
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    help="Scope, such as '*', jobs:ro or my-plugin:rw. Repeatable.",
)
@_expires
def create(call: CommandContext, name: str, scopes: tuple[str, ...], expires: str | None) -> None:
    """Create an API token, and show it once."""
    for scope in scopes:
        if "," in scope:
            apart = " ".join(f"--scope {part.strip()}" for part in scope.split(","))
            raise UsageError(f"{scope!r} is not a valid scope; repeat the option: {apart}")
    body = {"name": name, "scopes": list(scopes), "expires_in": expires}
    made = call.act("/tokens", body)
    for warning in () if call.as_json else made["warnings"]:
        output.aside(f"warning: {warning}", fg="yellow")
    call.show(made, _show_secret)


@token.write("rotate")
@click.argument("which", metavar="NAME_OR_ID")
@_expires
def rotate(call: CommandContext, which: str, expires: str | None) -> None:
    """Replace a token's secret, and show the new one once.

    The old secret is invalid at once.
    """
    made = call.act(path_to("token", which, "rotate"), {"expires_in": expires})
    call.show(made, _show_secret)


@token.write("revoke")
@click.argument("which", metavar="NAME_OR_ID")
def revoke(call: CommandContext, which: str) -> None:
    """Revoke a token at once."""
    call.show(call.act(path_to("token", which, "revoke")), _show_revoked)


@token.read("list")
def listing(call: CommandContext) -> None:
    """List the API tokens in the ledger.

    Tokens in the configuration are not listed.
    """
    with call.site.reading() as door:
        page = door.get("/tokens")
    call.show(page, _show_list)


def _show_secret(made: dict[str, Any]) -> None:
    if made.get("dry_run"):
        output.line(f"would create a token {made['name']} with {', '.join(made['scopes'])}")
        return
    click.echo(made["token"])
    until = f"expires {output.when(made['expires_at'])}" if made["expires_at"] else "no expiry"
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
        empty="no tokens; create one: ductile token create NAME --scope jobs:ro",
    )
