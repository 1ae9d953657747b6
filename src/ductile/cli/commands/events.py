"""`ductile events`: follow the gateway's event stream."""

from __future__ import annotations

import json
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import with_query
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import WholeNumber
from ductile.cli.stream import follow_stream
from ductile.core.values.terminal import escape_json

events = Noun("events", "Follow the gateway's events.", default="follow")


@events.read("follow")
@click.option(
    "--topic", "topics", multiple=True, help="Show only this topic, such as jobs. Repeatable."
)
@click.option("--after", metavar="ID", help="Start after this event instead of now.")
@click.option("--count", type=WholeNumber(1), help="Exit after this many events.")
def follow(
    context: CommandContext, topics: tuple[str, ...], after: str | None, count: int | None
) -> None:
    """Print events as they happen, until Ctrl-C.

    After a lost connection the stream is resumed where it stopped.
    """
    client = context.require_gateway(
        "no gateway is running, so there are no events; start one: ductile start"
    )
    target = with_query("/events", {"topic": ",".join(topics) or None, "after": after})
    for seen, (_, event) in enumerate(follow_stream(client, target), 1):
        if context.as_json:
            click.echo(escape_json(json.dumps(event)))
        else:
            _show(event)
        if seen == count:
            return


def _show(event: dict[str, Any]) -> None:
    # The data of an agent's event may be any JSON.
    data = event["data"] if isinstance(event["data"], dict) else {"reason": event["data"]}
    what = " ".join(str(data[key]) for key in ("plugin", "command", "pipeline") if data.get(key))
    rest = data.get("error") or data.get("reason") or ""
    head = f"{output.format_time(event['at'])}  {event['type']:<16} {what}"
    output.print_line(f"{head}  {data.get('job_id') or ''}  {rest}".rstrip())
