"""Server-sent events of the gateway, over as many connections as necessary."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from http.client import HTTPException, HTTPResponse
from typing import Any

from ductile.cli.client import STREAM_TIMEOUT, ApiError, GatewayClient, read_response
from ductile.errors import NotRunning

RECONNECT_DELAY = 1.0
MAX_RECONNECTS = 30

StreamEvent = tuple[str, Any]
"""The name of an event, and its data."""


def follow_stream(
    client: GatewayClient, target: str, last_id: str | None = None
) -> Iterator[StreamEvent]:
    """Yield every event after `last_id` once; a lost connection is resumed where it stopped.

    Ends only if the caller stops. Raises `NotRunning` if the gateway does not come back.
    """
    failures, is_connected = 0, False
    while True:
        try:
            for id, event in _read(client, target, last_id):
                last_id, failures, is_connected = id, 0, True
                if event is not None:
                    yield event
            reason = "the gateway closed the stream"
        except (OSError, HTTPException) as error:
            reason = str(error) or type(error).__name__
        failures += 1
        if not is_connected or failures > MAX_RECONNECTS:
            raise NotRunning(f"no gateway responds at {client.path}: {reason}")
        time.sleep(RECONNECT_DELAY)


def _read(
    client: GatewayClient, target: str, last_id: str | None
) -> Iterator[tuple[str, StreamEvent | None]]:
    """Yield the ids of one connection, each with its event or None."""
    connection = client.connect()
    connection.timeout = STREAM_TIMEOUT
    resumed = {} if last_id is None else {"Last-Event-ID": last_id}
    try:
        connection.request("GET", target, headers={**client.headers, **resumed})
        response = connection.getresponse()
        if response.status != 200:
            read_response(response.status, response.read())
        yield from _parse(response)
    finally:
        connection.close()


def _parse(response: HTTPResponse) -> Iterator[tuple[str, StreamEvent | None]]:
    fields: dict[str, str] = {}
    for raw in response:
        name, _, value = raw.decode().rstrip("\n").partition(": ")
        if name:
            fields[name] = value
        elif "id" in fields:
            data = fields.get("data")
            event = None if data is None else (fields.get("event", ""), _load(data))
            yield fields["id"], event
            fields = {}


def _load(data: str) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        raise ApiError({"error": "the gateway sent an event whose data is not JSON"}) from None
