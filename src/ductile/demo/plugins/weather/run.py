#!/usr/bin/env python3
"""A plugin in Python: it keeps its last result as state, and emits an event when that changes."""

import json
import sys
import time
import zlib
from typing import Any

Document = dict[str, Any]

SKIES = ("sun", "clouds", "rain", "fog", "snow")
CHANGES_EVERY = 20


def weather(city: str) -> tuple[str, int]:
    """Return a sky and a temperature, derived from the name and the time."""
    chance = zlib.crc32(f"{city}/{int(time.time() // CHANGES_EVERY)}".encode())
    return SKIES[chance % len(SKIES)], chance // 7 % 30 - 5


def poll(request: Document) -> Document:
    city = request["config"].get("city", "Vienna")
    sky, degrees = weather(city)
    before = request["state"].get("sky")
    response: Document = {
        "status": "ok",
        "result": f"{city}: {sky}, {degrees} °C",
        "state_updates": {"sky": sky},
    }
    if sky != before:
        changed = {"city": city, "sky": sky, "before": before}
        response["events"] = [{"type": "weather.changed", "payload": changed}]
    return response


def handle(request: Document) -> Document:
    city = request["event"]["payload"].get("city")
    if not city:
        # A retry would fail too, so `retry` is false.
        return {"status": "error", "error": "the payload has no city", "retry": False}
    sky, degrees = weather(city)
    return {"status": "ok", "result": f"{city}: {sky}, {degrees} °C"}


def ready(_request: Document) -> Document:
    return {"status": "ok", "result": "ready"}


COMMANDS = {"init": ready, "health": ready, "poll": poll, "handle": handle}

request = json.load(sys.stdin)
json.dump(COMMANDS[request["command"]](request), sys.stdout)
