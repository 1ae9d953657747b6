"""`ductile token`: create, list, rotate and revoke API tokens."""

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
def create(
    context: CommandContext, name: str, scopes: tuple[str, ...], expires: str | None
) -> None:
    """Create an API token, and show it once."""
    for scope in scopes:
        if "," in scope:
            apart = " ".join(f"--scope {part.strip()}" for part in scope.split(","))
            raise UsageError(f"{scope!r} is not a valid scope; repeat the option: {apart}")
    body = {"name": name, "scopes": list(scopes), "expires_in": expires}
    created = context.post("/tokens", body)
    for warning in () if context.as_json else created["warnings"]:
        output.print_stderr(f"warning: {warning}", fg="yellow")
    context.show(created, _show_secret)


@token.write("rotate")
@click.argument("which", metavar="NAME_OR_ID")
@_expires
def rotate(context: CommandContext, which: str, expires: str | None) -> None:
    """Replace a token's secret, and show the new one once.

    The old secret is invalid at once.
    """
    created = context.post(path_to("token", which, "rotate"), {"expires_in": expires})
    context.show(created, _show_secret)


@token.write("revoke")
@click.argument("which", metavar="NAME_OR_ID")
def revoke(context: CommandContext, which: str) -> None:
    """Revoke a token at once."""
    context.show(context.post(path_to("token", which, "revoke")), _show_revoked)


@token.read("list")
def listing(context: CommandContext) -> None:
    """List the API tokens in the ledger.

    Tokens in the configuration are not listed.
    """
    with context.target.open_reader() as api:
        page = api.get("/tokens")
    context.show(page, _show_list)


def _show_secret(created: dict[str, Any]) -> None:
    scopes = ", ".join(created["scopes"])
    if created.get("dry_run"):
        output.print_line(f"would create a token {created['name']} with {scopes}")
        return
    click.echo(created["token"])
    expiry = created["expires_at"]
    expires = f"expires {output.format_time(expiry)}" if expiry else "no expiry"
    output.print_stderr(f"{created['name']}: {scopes}; {expires}. It is not shown again.")


def _show_revoked(done: dict[str, Any]) -> None:
    output.print_line(f"{'would revoke' if done.get('dry_run') else 'revoked'} {done['name']}")


def _show_list(page: dict[str, Any]) -> None:
    output.print_table(
        ("id", "name", "scopes", "created", "expires", "revoked"),
        (
            (
                row["id"],
                row["name"],
                " ".join(row["scopes"]),
                output.format_time(row["created_at"]),
                output.format_time(row["expires_at"]),
                output.format_time(row["revoked_at"]),
            )
            for row in page["tokens"]
        ),
        empty="no tokens; create one: ductile token create NAME --scope jobs:ro",
    )
