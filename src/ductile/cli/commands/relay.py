"""`ductile relay`: events that are sent to other gateways."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import DELIVERY_STATUS, limit_option, parse_since, read_json
from ductile.errors import UsageError

relay = Noun("relay", "Send events to other gateways; list and retry them.")

UNTIL = click.option(
    "--until",
    type=parse_since,
    metavar="TIME",
    help="Only those attempted before then (7d, or ISO 8601).",
)


@relay.write("send")
@click.argument("instance")
@click.option("--event", required=True, metavar="TYPE", help="Type of the event.")
@click.option("--payload", metavar="JSON|@FILE|-", help="Payload; - reads stdin. Default: {}.")
@click.option("--payload-file", metavar="FILE", hidden=True, help="Same as --payload @FILE.")
@click.option("--baggage", metavar="JSON|@FILE", help="Values for the run at the receiver.")
@click.option("--baggage-file", metavar="FILE", hidden=True, help="Same as --baggage @FILE.")
@click.option("--dedupe-key", metavar="KEY", help="Dedupe key of the event at the receiver.")
def send(
    context: CommandContext,
    instance: str,
    event: str,
    payload: str | None,
    payload_file: str | None,
    baggage: str | None,
    baggage_file: str | None,
    dedupe_key: str | None,
) -> None:
    """Send an event to another gateway.

    INSTANCE is its name in `instances`. The event is sent at once, and again until the other
    gateway has accepted it.
    """
    body: dict[str, Any] = {"to": instance, "event": event}
    texts = {"payload": (payload, payload_file), "baggage": (baggage, baggage_file)}
    for name, (text, file) in texts.items():
        if text is not None and file is not None:
            raise UsageError(f"--{name} and --{name}-file cannot be combined")
        if (given := f"@{file}" if file is not None else text) is not None:
            body[name] = read_json(given, f"the {name}")
    if dedupe_key is not None:
        body["dedupe_key"] = dedupe_key
    context.show(context.post("/relays", body), _show_sent)


def _show_sent(done: dict[str, Any]) -> None:
    if done.get("dry_run"):
        output.print_line(f"would send {done['event']} to {done['to']}")
    else:
        output.print_line(f"queued {done['event']} to {done['to']} as relay {done['id']}")


@relay.read("list")
@click.option("--status", type=DELIVERY_STATUS, help="Show only relays in this state.")
@click.option("--instance", metavar="NAME", help="Show only relays to this gateway.")
@limit_option()
def listing(context: CommandContext, status: str | None, instance: str | None, limit: int) -> None:
    """List events sent to other gateways, newest first."""
    context.show(context.get("/relays", status=status, instance=instance, limit=limit), _show)


@relay.write("retry")
@click.argument("relay_id", metavar="ID", required=False)
@click.option("--all-dead", is_flag=True, help="Retry every dead relay.")
def retry(context: CommandContext, relay_id: str | None, all_dead: bool) -> None:
    """Retry a failed or dead relay now."""
    if (relay_id is None) is not all_dead:
        raise UsageError("give one relay ID, or --all-dead")
    if relay_id is not None:
        context.show(context.post(path_to("relay", relay_id, "retry")), _show_retried)
    else:
        context.show(context.post("/relays/retry"), _show_all_retried)


@relay.write("discard")
@click.argument("relay_id", metavar="ID", required=False)
@click.option("--all-dead", is_flag=True, help="Discard every dead relay.")
@UNTIL
def discard(
    context: CommandContext, relay_id: str | None, all_dead: bool, until: str | None
) -> None:
    """Delete a dead relay.

    Dead relays are also deleted after service.job_queue_retention.
    """
    if (relay_id is None) is not all_dead or (until is not None and not all_dead):
        raise UsageError("give one relay ID, or --all-dead, which --until can limit")
    if relay_id is not None:
        done = context.post(path_to("relay", relay_id, "discard"))
        context.show({**done, "count": 1}, _show_discarded)
    else:
        context.show(discard_all(context, "/relays/discard", until, "relays"), _show_discarded)


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


def _show_discarded(done: dict[str, Any]) -> None:
    verb = "would discard" if done.get("dry_run") else "discarded"
    output.print_line(f"{verb} {output.format_count(done['count'], 'relay')}")


def _show(page: dict[str, Any]) -> None:
    output.print_table(
        page["relays"],
        {
            "id": "id",
            "to": "instance",
            "event": "event_type",
            "status": "status",
            "failures": "attempt_count",
            "next attempt": output.time_of("next_retry_at"),
            "error": "error_detail",
        },
        empty="no relays",
    )


def _show_retried(done: dict[str, Any]) -> None:
    output.print_line(f"{'would retry' if done.get('dry_run') else 'retrying'} relay {done['id']}")


def _show_all_retried(done: dict[str, Any]) -> None:
    verb = "would retry" if done.get("dry_run") else "retrying"
    more = "; more relays are dead, run the command again" if done["more"] else ""
    output.print_line(f"{verb} {output.format_count(done['count'], 'relay')}{more}")
