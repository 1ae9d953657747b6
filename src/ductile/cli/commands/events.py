"""`ductile events`: everything that happens, as it happens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import SILENCE, Client, read_answer, with_query
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import Whole
from ductile.errors import NotRunning

events = Noun("events", "Follow the gateway's events.", default="follow")

PAUSE = 1.0
MOST_TRIES = 30


@events.read("follow")
@click.option(
    "--topic", "topics", multiple=True, help="Show only this topic, such as jobs. Repeatable."
)
@click.option("--after", metavar="ID", help="Start after this event instead of now.")
@click.option("--count", type=Whole(1), help="Exit after this many events.")
def follow(
    call: CommandContext, topics: tuple[str, ...], after: str | None, count: int | None
) -> None:
    """Print events as they happen, until Ctrl-C.

    After a lost connection the stream is resumed where it stopped.
    """
    client = call.site.client()
    if client is None:
        raise NotRunning("no gateway is running, so there are no events; start one: ductile start")
    for seen, event in enumerate(_followed(client, topics, after), 1):
        if call.as_json:
            click.echo(json.dumps(event))
        else:
            _show(event)
        if seen == count:
            return


def _followed(
    client: Client, topics: tuple[str, ...], after: str | None
) -> Iterator[dict[str, Any]]:
    """Every event once, over as many connections as it takes."""
    import time

    tries = 0
    while True:
        try:
            for id, event in _connected(client, topics, after):
                after, tries = id, 0
                if event is not None:
                    yield event
            why = "the gateway closed the stream"
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
        tries += 1
        if after is None or tries > MOST_TRIES:
            raise NotRunning(f"no gateway responds at {client.path}: {why}")
        time.sleep(PAUSE)


def _connected(
    client: Client, topics: tuple[str, ...], after: str | None
) -> Iterator[tuple[str, dict[str, Any] | None]]:
    """Ids as they pass, with their events where they have one."""
    connection = client.connect()
    connection.timeout = SILENCE
    try:
        target = with_query("/events", {"topic": ",".join(topics) or None, "after": after})
        connection.request("GET", target, headers=dict(client.headers))
        response = connection.getresponse()
        if response.status != 200:
            read_answer(response.status, response.read())
        yield from _parsed(response)
    finally:
        connection.close()


def _parsed(response: HTTPResponse) -> Iterator[tuple[str, dict[str, Any] | None]]:
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
    # An agent's own may be any JSON.
    told = event["data"] if isinstance(event["data"], dict) else {"reason": event["data"]}
    what = " ".join(str(told[key]) for key in ("plugin", "command", "pipeline") if told.get(key))
    rest = told.get("error") or told.get("reason") or ""
    head = f"{output.when(event['at'])}  {event['type']:<16} {what}"
    output.line(f"{head}  {told.get('job_id') or ''}  {rest}".rstrip())
