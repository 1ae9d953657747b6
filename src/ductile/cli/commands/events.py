"""`ductile events`: follow the gateway's event stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import STREAM_TIMEOUT, GatewayClient, read_response, with_query
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import WholeNumber
from ductile.core.values.terminal import escape_json
from ductile.errors import NotRunning

events = Noun("events", "Follow the gateway's events.", default="follow")

RECONNECT_DELAY = 1.0
MAX_RECONNECTS = 30


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
    client = context.target.client()
    if client is None:
        raise NotRunning("no gateway is running, so there are no events; start one: ductile start")
    for seen, event in enumerate(_follow(client, topics, after), 1):
        if context.as_json:
            click.echo(escape_json(json.dumps(event)))
        else:
            _show(event)
        if seen == count:
            return


def _follow(
    client: GatewayClient, topics: tuple[str, ...], after: str | None
) -> Iterator[dict[str, Any]]:
    """Yield every event once, over as many connections as necessary."""
    import time

    failures = 0
    while True:
        try:
            for id, event in _stream(client, topics, after):
                after, failures = id, 0
                if event is not None:
                    yield event
            reason = "the gateway closed the stream"
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
        failures += 1
        if after is None or failures > MAX_RECONNECTS:
            raise NotRunning(f"no gateway responds at {client.path}: {reason}")
        time.sleep(RECONNECT_DELAY)


def _stream(
    client: GatewayClient, topics: tuple[str, ...], after: str | None
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Yield the ids of one connection, each with its event or None."""
    connection = client.connect()
    connection.timeout = STREAM_TIMEOUT
    try:
        target = with_query("/events", {"topic": ",".join(topics) or None, "after": after})
        connection.request("GET", target, headers=dict(client.headers))
        response = connection.getresponse()
        if response.status != 200:
            read_response(response.status, response.read())
        yield from _parse(response)
    finally:
        connection.close()


def _parse(response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any] | None]]:
    id = data = None
    for raw in response:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name == "id":
            id = value
        elif name == "data":
            data = value
        elif not name and id is not None:
            yield id, None if data is None else json.loads(data)
            id = data = None


def _show(event: dict[str, Any]) -> None:
    # The data of an agent's event may be any JSON.
    data = event["data"] if isinstance(event["data"], dict) else {"reason": event["data"]}
    what = " ".join(str(data[key]) for key in ("plugin", "command", "pipeline") if data.get(key))
    rest = data.get("error") or data.get("reason") or ""
    head = f"{output.format_time(event['at'])}  {event['type']:<16} {what}"
    output.print_line(f"{head}  {data.get('job_id') or ''}  {rest}".rstrip())
