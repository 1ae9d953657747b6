#!/usr/bin/env python3
"""Reads the configuration, remembers a cursor, emits what it found."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))

from wire import serve


def poll(request):
    assert request["config"]["client_secret"]
    cursor = request["state"].get("cursor", 0) + 1
    event = {
        "type": "withings.weight",
        "payload": {"kg": 80 + cursor, "measured_at": "2026-02-08T06:00:00Z"},
        "dedupe_key": f"withings:weight:{cursor}",
    }
    return {"result": "1 measurement", "events": [event], "state_updates": {"cursor": cursor}}


def token_refresh(request):
    state = {**request["state"], "access_token": "a-token-that-nobody-sees"}
    return {"result": "refreshed", "state_updates": state}


def nothing(request):
    return {"result": "ready"}


serve({"poll": poll, "token_refresh": token_refresh, "health": nothing, "init": nothing})
