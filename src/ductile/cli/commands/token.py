"""`ductile token`: create, list, rotate and revoke API tokens."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import path_to
from ductile.cli.command import CommandContext, Noun
from ductile.errors import UsageError

LIMITS = ("runs", "retries")

token = Noun("token", "Create, list, rotate and revoke API tokens.")

_expires = click.option(
    "--expires", metavar="DURATION", help="Lifetime, such as 30d or 12h. Default: unlimited."
)


@token.write("create")
@click.argument("name", required=False)
@click.option("--for", "holder", metavar="NAME", help="Create a lease: every run is recorded.")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    help="Scope, such as '*', jobs:ro or my-plugin:rw. Repeatable.",
)
@click.option("--scopes", "scope_list", metavar="LIST", help="Scopes, separated by commas.")
@click.option(
    "--budget", metavar="LIMITS", help="How often it may act, such as runs=20,retries=50."
)
@_expires
def create(
    context: CommandContext,
    name: str | None,
    holder: str | None,
    scopes: tuple[str, ...],
    scope_list: str | None,
    budget: str | None,
    expires: str | None,
) -> None:
    """Create an API token, and show it once.

    A lease is a token for an agent. It ends when it expires (--expires) or its budget is used up
    (--budget). To list what it did, run: ductile audit --token NAME
    """
    if (name is None) is (holder is None):
        raise UsageError("give the name of the token: NAME, or --for NAME for a lease")
    body: dict[str, Any] = {"name": name or holder, "scopes": _parse_scopes(scopes, scope_list)}
    body["expires_in"] = expires
    if holder is not None:
        body["lease"] = True
    if budget is not None:
        body["budget"] = _parse_budget(budget)
    created = context.post("/tokens", body)
    for warning in () if context.as_json else created["warnings"]:
        output.print_stderr(f"warning: {warning}", fg="yellow")
    context.show(created, _show_secret)


def _parse_scopes(scopes: tuple[str, ...], listed: str | None) -> list[str]:
    for scope in scopes:
        if "," in scope:
            raise UsageError(f"{scope!r} is not a valid scope; use: --scopes {scope}")
    more = [part.strip() for part in (listed or "").split(",") if part.strip()]
    if not scopes and not more:
        raise UsageError("name what the token may do, such as --scope jobs:ro")
    return [*scopes, *more]


def _parse_budget(text: str) -> dict[str, int]:
    limits = {}
    for part in text.split(","):
        name, _, count = part.strip().partition("=")
        if name not in LIMITS or not count.isascii() or not count.isdigit() or len(count) > 9:
            raise UsageError(f"{part.strip()!r} is not a limit; use: --budget runs=20,retries=50")
        limits[name] = int(count)
    return limits


@token.write("rotate")
@click.argument("which", metavar="NAME_OR_ID")
@click.option("--overlap", metavar="DURATION", help="Keep the old secret valid that long.")
@_expires
def rotate(context: CommandContext, which: str, overlap: str | None, expires: str | None) -> None:
    """Replace a token's secret, and show the new one once.

    The old secret is invalid at once; with --overlap, both are valid for that time. During an
    overlap only a rotation without --overlap is possible: it ends all older secrets.
    """
    body = {"expires_in": expires, "overlap": overlap}
    created = context.post(path_to("token", which, "rotate"), body)
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
    context.show(context.get("/tokens"), _show_list)


def _show_secret(created: dict[str, Any]) -> None:
    scopes = ", ".join(created["scopes"])
    if created.get("dry_run"):
        change = "replace the secret of the token" if "id" in created else "create a token"
        output.print_line(f"would {change} {created['name']} with {scopes}")
        return
    click.echo(created["token"])
    expiry = created["expires_at"]
    expires = f"expires {output.format_time(expiry)}" if expiry else "no expiry"
    output.print_stderr(f"{created['name']}: {scopes}; {expires}. It is not shown again.")
    if until := created.get("previous_until"):
        output.print_stderr(f"The old secret works until {output.format_time(until)}.")


def _show_revoked(done: dict[str, Any]) -> None:
    output.print_line(f"{'would revoke' if done.get('dry_run') else 'revoked'} {done['name']}")


def _show_list(page: dict[str, Any]) -> None:
    output.print_table(
        page["tokens"],
        {
            "id": "id",
            "name": "name",
            "scopes": lambda row: " ".join(row["scopes"]),
            "created": output.time_of("created_at"),
            "expires": _format_end,
            "budget left": lambda row: _format_budget(row["budget"]),
            "revoked": output.time_of("revoked_at"),
        },
        empty="no tokens; create one: ductile token create NAME --scope jobs:ro",
    )


def _format_end(row: dict[str, Any]) -> str:
    from ductile.clock import SystemClock, from_text

    end, old = row["expires_at"], row["previous_until"]
    if end and from_text(end) <= SystemClock().now():
        return f"{output.format_time(end)} (expired)"
    if row["revoked_at"] or not old:
        return output.format_time(end)
    return f"{output.format_time(end) if end else 'never'} (old secret: {output.format_time(old)})"


def _format_budget(budget: dict[str, Any] | None) -> str:
    limits = {name: (budget or {}).get(name) or {} for name in LIMITS}
    return " ".join(
        f"{name} {limit['left']}/{limit['limit']}"
        for name, limit in limits.items()
        if limit.get("limit") is not None
    )
