"""`ductile webhook`: agent webhooks, their deliveries and dead letters."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.commands.relay import UNTIL, discard_all
from ductile.cli.options import (
    DELIVERY_STATUS,
    WholeNumber,
    limit_option,
    parse_since,
    read_json,
)
from ductile.errors import UsageError

MAX_SECRET_LENGTH = 4096

webhook = Noun("webhook", "Manage agent webhooks and their deliveries.")
config = Noun("config", "Add, list and remove agent webhooks.")
webhook.add_command(config)

_since = click.option(
    "--since",
    type=parse_since,
    metavar="TIME",
    help="Only deliveries attempted since then (2h, or ISO 8601).",
)


@config.write("add")
@click.argument("source")
@click.argument("event")
@click.option("--session", required=True, help="Session that receives the events.")
@click.option("--intent", help="What the agent should do with the events.")
@click.option("--url", metavar="URL", help="Send the events to this URL. Default: keep them here.")
@click.option("--plugin", metavar="NAME", help="Run this plugin's `handle` for each event.")
@click.option("--pipeline", metavar="NAME", help="Start this pipeline for each event.")
@click.option("--secret-env", metavar="NAME", help="Environment variable with the secret.")
@click.option("--secret-file", metavar="FILE", help="File with the secret; - reads stdin.")
def add(
    context: CommandContext,
    source: str,
    event: str,
    session: str,
    intent: str | None,
    url: str | None,
    plugin: str | None,
    pipeline: str | None,
    secret_env: str | None,
    secret_file: str | None,
) -> None:
    """Add a webhook for the events EVENT of SOURCE.

    Without --secret-env and --secret-file, a secret is generated and shown once.
    """
    body = {
        "source_identifier": source,
        "event_type": event,
        "target_session": session,
        "agent_intent": intent,
        "target_url": url,
        "plugin": plugin,
        "pipeline": pipeline,
        "secret": _read_secret(secret_env, secret_file),
    }
    context.show(context.post("/gateway/webhook-configs", body), _show_added)


def _read_secret(variable: str | None, file: str | None) -> str | None:
    """Read the secret; it is not an argument, since other users can read a command line."""
    if variable is not None and file is not None:
        raise UsageError("--secret-env and --secret-file cannot be combined")
    if variable is not None:
        if not os.environ.get(variable):
            raise UsageError(f"the environment variable {variable} is not set")
        return os.environ[variable]
    if file is None:
        return None
    if file == "-":
        text = sys.stdin.read(MAX_SECRET_LENGTH)
    else:
        with Path(file).open(encoding="utf-8") as opened:
            text = opened.read(MAX_SECRET_LENGTH)
    if not text.strip():
        raise UsageError("the secret is empty")
    return text.strip()


def _show_added(webhook: Json) -> None:
    name = f"{webhook['source_identifier']}/{webhook['event_type']}"
    if webhook.get("dry_run"):
        output.print_line(f"would add a webhook for {name}")
        return
    output.print_line(f"added webhook {webhook['id']} for {name}")
    output.print_stderr(f"send its events to /gateway/webhooks/{webhook['id']}")
    if "secret" in webhook:
        click.echo(webhook["secret"])
        output.print_stderr("This is its secret. It is not shown again.")


@config.read("list")
def listing(context: CommandContext) -> None:
    """List webhooks, without their secrets."""
    context.show(context.get("/gateway/webhook-configs"), _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        page["webhooks"],
        {
            "id": "id",
            "source": "source_identifier",
            "event": "event_type",
            "session": "target_session",
            "intent": "agent_intent",
            "target": _targets,
        },
        empty="no webhooks; add one: ductile webhook config add SOURCE EVENT --session ID",
    )


def _targets(row: Json) -> str:
    if row["target_url"]:
        return str(row["target_url"])
    kinds = [f"{kind} {row[kind]}" for kind in ("plugin", "pipeline") if row[kind]]
    return ", ".join(kinds) or "session only"


@config.write("remove")
@click.argument("id", type=WholeNumber(1))
def remove(context: CommandContext, id: int) -> None:
    """Remove a webhook.

    Its pending deliveries become dead when they are due.
    """
    with context.open_api() as api:
        done = api.delete(
            path_to("gateway", "webhook-configs", str(id)),
            dry_run="true" if context.dry_run else None,
        )
    context.show(done, _show_removed)


def _show_removed(done: Json) -> None:
    verb = "would remove" if done.get("dry_run") else "removed"
    output.print_line(
        f"{verb} webhook {done['id']}: {done['source_identifier']}/{done['event_type']}"
    )


@webhook.write("send")
@click.argument("id", type=WholeNumber(1), required=False)
@click.option("--source", help="Source of the webhook; with --event, instead of ID.")
@click.option("--event", help="Event of the webhook; with --source, instead of ID.")
@click.option(
    "--payload", metavar="JSON|@FILE|-", help="Payload to send; - reads stdin. Default: {}."
)
def send(
    context: CommandContext,
    id: int | None,
    source: str | None,
    event: str | None,
    payload: str | None,
) -> None:
    """Send a signed payload by a webhook.

    It is sent at once, and again until it is delivered or dead.
    """
    fields: dict[str, Any] = {"webhook_id": id, "source_identifier": source, "event_type": event}
    body = {key: value for key, value in fields.items() if value is not None}
    if payload is not None:
        body["payload"] = read_json(payload)
    context.show(context.post("/gateway/deliveries", body), _show_sent)


def _show_sent(sent: Json) -> None:
    if sent.get("dry_run"):
        size = output.format_count(sent["bytes"], "byte")
        output.print_line(
            f"would send {size} by webhook {sent['webhook_id']} to {sent['target_url']}"
        )
        return
    output.print_line(f"queued delivery {sent['delivery_id']} to {sent['target_url']}")


@webhook.read("deliveries")
@click.option("--status", type=DELIVERY_STATUS, help="Show only deliveries in this state.")
@click.option(
    "--webhook",
    "webhook_id",
    type=WholeNumber(1),
    metavar="ID",
    help="Show only deliveries of this webhook.",
)
@_since
@click.option("--before", type=WholeNumber(1), metavar="ID", help="Continue after this delivery.")
@limit_option()
def deliveries(
    context: CommandContext,
    status: str | None,
    webhook_id: int | None,
    since: str | None,
    before: int | None,
    limit: int,
) -> None:
    """List deliveries, newest first."""
    filters = {"status": status, "webhook_id": webhook_id, "since": since}
    context.show(
        context.get("/gateway/deliveries", before=before, limit=limit, **filters), _show_deliveries
    )


def _show_deliveries(page: Json) -> None:
    output.print_table(
        page["deliveries"],
        {
            "id": "delivery_id",
            "webhook": "webhook_id",
            "status": "status",
            "failures": "attempt_count",
            "last attempt": output.time_of("last_attempted_at"),
            "next attempt": output.time_of("next_retry_at"),
            "target": "target_url",
            "error": "error_detail",
        },
        empty="no deliveries",
    )
    if page["cursor"] is not None:
        output.print_stderr(f"more rows: --before {page['cursor']}")


@webhook.read("show")
@click.argument("id", type=WholeNumber(1))
def show(context: CommandContext, id: int) -> None:
    """Show one delivery with its payload."""
    context.show(context.get(path_to("gateway", "deliveries", str(id))), _show_one)


def _show_one(row: Json) -> None:
    for key in (k for k in row if k != "payload"):
        output.print_line(f"{key}: {'-' if row[key] is None else row[key]}")
    output.print_section("payload", output.format_value(row["payload"]))


@webhook.write("retry")
@click.argument("id", type=WholeNumber(1), required=False)
@click.option("--all-dead", is_flag=True, help="Retry every dead delivery.")
@click.option(
    "--webhook", "webhook_id", type=WholeNumber(1), help="Retry the dead ones of this webhook."
)
@_since
def retry(
    context: CommandContext,
    id: int | None,
    all_dead: bool,
    webhook_id: int | None,
    since: str | None,
) -> None:
    """Retry a failed or dead delivery now.

    It gets its full number of attempts again. --dry-run shows how many would be retried.
    """
    many = all_dead or webhook_id is not None
    if (id is None) is not many or (since is not None and not many):
        raise UsageError(
            "give one delivery ID, --webhook ID or --all-dead, which --since can limit"
        )
    if id is not None:
        done = context.post(path_to("gateway", "deliveries", str(id), "retry"))
        context.show(done, _show_retried)
        return
    chosen = {"since": since, "webhook": webhook_id}
    body = {"status": "dead", **{key: value for key, value in chosen.items() if value is not None}}
    context.show(context.post("/gateway/deliveries/retry", body), _show_all_retried)


def _show_retried(done: Json) -> None:
    verb = "would retry" if done.get("dry_run") else "retrying"
    output.print_line(f"{verb} delivery {done['delivery_id']} (was {done['was']})")


def _show_all_retried(done: Json) -> None:
    verb = "would retry" if done.get("dry_run") else "retrying"
    count = done["count"]
    output.print_line(f"{verb} {count} {'delivery' if count == 1 else 'deliveries'}")
    if done["more"]:
        output.print_stderr("more deliveries are dead; run the command again")


@webhook.write("discard")
@click.argument("id", type=WholeNumber(1), required=False)
@click.option("--all-dead", is_flag=True, help="Discard every dead delivery.")
@UNTIL
def discard(context: CommandContext, id: int | None, all_dead: bool, until: str | None) -> None:
    """Delete a dead delivery.

    Dead deliveries are also deleted after service.job_queue_retention.
    """
    if (id is None) is not all_dead or (until is not None and not all_dead):
        raise UsageError("give one delivery ID, or --all-dead, which --until can limit")
    if id is not None:
        done = context.post(path_to("gateway", "deliveries", str(id), "discard"))
        context.show({**done, "count": 1}, _show_discarded)
    else:
        done = discard_all(context, "/gateway/deliveries/discard", until, "deliveries")
        context.show(done, _show_discarded)


def _show_discarded(done: Json) -> None:
    verb = "would discard" if done.get("dry_run") else "discarded"
    count = done["count"]
    output.print_line(f"{verb} {count} {'delivery' if count == 1 else 'deliveries'}")
