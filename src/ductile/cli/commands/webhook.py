"""`ductile webhook`: webhooks for agents, their deliveries, and the dead letters among them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import DELIVERY_STATUS, Whole, limited, since
from ductile.cli.options import payload as read_payload
from ductile.errors import UsageError

LONGEST_SECRET_FILE = 4096

webhook = Noun("webhook", "Webhooks for agents, and what is delivered by them.")
config = Noun("config", "The webhooks themselves: whose events go where, by which secret.")
webhook.add_command(config)

_since = click.option(
    "--since", type=since, metavar="TIME", help="Only what was tried since then (2h, a time)."
)


@config.write("add")
@click.argument("source")
@click.argument("event")
@click.option("--session", required=True, help="The session that its events are for.")
@click.option("--intent", help="What the agent is to do with them.")
@click.option("--url", metavar="URL", help="Where they are sent; without it they stay here.")
@click.option("--plugin", metavar="NAME", help="The plugin whose `handle` gets them.")
@click.option("--pipeline", metavar="NAME", help="The pipeline that they start.")
@click.option("--secret-env", metavar="NAME", help="The variable that holds the secret.")
@click.option("--secret-file", metavar="FILE", help="The file that does; - is stdin.")
def add(
    call: CommandContext,
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

    Without a secret of yours one is made, and shown this once.
    """
    body = {
        "source_identifier": source,
        "event_type": event,
        "target_session": session,
        "agent_intent": intent,
        "target_url": url,
        "plugin": plugin,
        "pipeline": pipeline,
        "secret": _secret(secret_env, secret_file),
    }
    call.show(call.act("/gateway/webhook-configs", body), _show_added)


def _secret(variable: str | None, file: str | None) -> str | None:
    """Never from the command line: there everybody on the machine can read it."""
    if variable is not None and file is not None:
        raise UsageError("name --secret-env or --secret-file, not both")
    if variable is not None:
        if not os.environ.get(variable):
            raise UsageError(f"the environment has no {variable}")
        return os.environ[variable]
    if file is None:
        return None
    if file == "-":
        text = sys.stdin.read(LONGEST_SECRET_FILE)
    else:
        with Path(file).open(encoding="utf-8") as opened:
            text = opened.read(LONGEST_SECRET_FILE)
    if not text.strip():
        raise UsageError("there is no secret in it")
    return text.strip()


def _show_added(made: Json) -> None:
    name = f"{made['source_identifier']}/{made['event_type']}"
    if made.get("dry_run"):
        output.line(f"would add a webhook for {name}")
        return
    output.line(f"webhook {made['id']} for {name}")
    output.aside(f"its events come in at /gateway/webhooks/{made['id']}")
    if "secret" in made:
        click.echo(made["secret"])
        output.aside("That is its secret; it is not shown again.")


@config.read("list")
def listing(call: CommandContext) -> None:
    """List the webhooks, never with their secrets."""
    with call.site.reading() as door:
        page = door.get("/gateway/webhook-configs")
    call.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.table(
        ("id", "source", "event", "session", "intent", "goes to"),
        (
            (
                row["id"],
                row["source_identifier"],
                row["event_type"],
                row["target_session"],
                row["agent_intent"],
                _goes_to(row),
            )
            for row in page["webhooks"]
        ),
        empty="no webhooks; add one: ductile webhook config add SOURCE EVENT --session ID",
    )


def _goes_to(row: Json) -> str:
    if row["target_url"]:
        return str(row["target_url"])
    kinds = [f"{kind} {row[kind]}" for kind in ("plugin", "pipeline") if row[kind]]
    return ", ".join(kinds) or "its session"


@config.write("remove")
@click.argument("id", type=Whole(1))
def remove(call: CommandContext, id: int) -> None:
    """Remove a webhook: what is outstanding of it will be dead when it is due."""
    with call.place() as door:
        done = door.delete(
            path_to("gateway", "webhook-configs", str(id)),
            dry_run="true" if call.dry_run else None,
        )
    call.show(done, _show_removed)


def _show_removed(done: Json) -> None:
    verb = "would remove" if done.get("dry_run") else "removed"
    output.line(f"{verb} webhook {done['id']}: {done['source_identifier']}/{done['event_type']}")


@webhook.write("send")
@click.argument("id", type=Whole(1), required=False)
@click.option("--source", help="With --event, in place of the id.")
@click.option("--event", help="With --source, in place of the id.")
@click.option(
    "--payload", metavar="JSON", help="What to send: JSON, @FILE, or - for stdin. By default {}."
)
def send(
    call: CommandContext, id: int | None, source: str | None, event: str | None, payload: str | None
) -> None:
    """Send a payload by a webhook: signed, at once, and again until it arrives or is dead."""
    named: dict[str, Any] = {"webhook_id": id, "source_identifier": source, "event_type": event}
    body = {key: value for key, value in named.items() if value is not None}
    if payload is not None:
        body["payload"] = read_payload(payload)
    call.show(call.act("/gateway/deliveries", body), _show_sent)


def _show_sent(sent: Json) -> None:
    if sent.get("dry_run"):
        size = output.count(sent["bytes"], "byte")
        output.line(f"would send {size} by webhook {sent['webhook_id']} to {sent['target_url']}")
        return
    output.line(f"delivery {sent['delivery_id']} to {sent['target_url']}")


@webhook.read("deliveries")
@click.option(
    "--status", type=DELIVERY_STATUS, help="Only those in this state; dead ones wait for you."
)
@click.option("--webhook", "webhook_id", type=Whole(1), metavar="ID", help="Only of one.")
@_since
@click.option("--before", type=Whole(1), metavar="ID", help="Go on behind this one.")
@limited()
def deliveries(
    call: CommandContext,
    status: str | None,
    webhook_id: int | None,
    since: str | None,
    before: int | None,
    limit: int,
) -> None:
    """List deliveries, the newest first."""
    asked = {"status": status, "webhook_id": webhook_id, "since": since}
    with call.site.reading() as door:
        page = door.get("/gateway/deliveries", before=before, limit=limit, **asked)
    call.show(page, _show_deliveries)


def _show_deliveries(page: Json) -> None:
    output.table(
        ("id", "webhook", "status", "failed", "tried", "next", "to", "why"),
        (
            (
                row["delivery_id"],
                row["webhook_id"],
                row["status"],
                row["attempt_count"],
                output.when(row["last_attempted_at"]),
                output.when(row["next_retry_at"]),
                row["target_url"],
                row["error_detail"],
            )
            for row in page["deliveries"]
        ),
        empty="no deliveries",
    )
    if page["cursor"] is not None:
        output.aside(f"there are more; go on with --before {page['cursor']}")


@webhook.read("show")
@click.argument("id", type=Whole(1))
def show(call: CommandContext, id: int) -> None:
    """Show one delivery with its payload."""
    with call.site.reading() as door:
        row = door.get(path_to("gateway", "deliveries", str(id)))
    call.show(row, _show_one)


def _show_one(row: Json) -> None:
    for key in (k for k in row if k != "payload"):
        output.line(f"{key}: {'-' if row[key] is None else row[key]}")
    output.section("payload", output.value(row["payload"]))


@webhook.write("retry")
@click.argument("id", type=Whole(1), required=False)
@click.option("--all-dead", is_flag=True, help="Every one that was given up.")
@_since
def retry(call: CommandContext, id: int | None, all_dead: bool, since: str | None) -> None:
    """Send a delivery again, now, and with all its six sends."""
    if (id is None) is not all_dead or (since is not None and not all_dead):
        raise UsageError("name one delivery, or say --all-dead, with --since or without")
    if id is not None:
        answer = call.act(path_to("gateway", "deliveries", str(id), "retry"))
        call.show(answer, _show_retried)
        return
    body = {"status": "dead", **({"since": since} if since is not None else {})}
    call.show(call.act("/gateway/deliveries/retry", body), _show_many)


def _show_retried(done: Json) -> None:
    verb = "would be sent" if done.get("dry_run") else "is sent"
    output.line(f"delivery {done['delivery_id']} {verb} again (it was {done['was']})")


def _show_many(done: Json) -> None:
    verb = "would be sent" if done.get("dry_run") else "sent"
    count = done["count"]
    output.line(f"{count} {'delivery' if count == 1 else 'deliveries'} {verb} again")
    if done["more"]:
        output.aside("there are more; say it again")
