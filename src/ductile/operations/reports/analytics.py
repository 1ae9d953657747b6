"""Figures about finished attempts and the queue, by plugin."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ductile.clock import from_text, to_text
from ductile.engine.services import Services


def summarize_attempts(services: Services, window: timedelta) -> dict[str, Any]:
    """Return the attempts that ended within the window, by plugin and status."""
    since = to_text(services.clock.now() - window)
    rows = services.ledger.read(lambda tx: tx.dicts("finished_by_plugin", since=since))
    total: dict[str, int] = {}
    for row in rows:
        total[row["status"]] = total.get(row["status"], 0) + row["attempts"]
        row["mean_ms"] = None if row["mean_ms"] is None else round(float(row["mean_ms"]), 1)
    return {"since": since, "total": total, "plugins": rows}


def summarize_queue(services: Services) -> dict[str, Any]:
    """Return the queued and running jobs by plugin, and the age of the oldest."""
    rows = services.ledger.read(lambda tx: tx.dicts("queue_by_plugin"))
    now = services.clock.now()
    count = {"queued": 0, "running": 0}
    for row in rows:
        count[row["status"]] += row["jobs"]
        row["oldest_seconds"] = round(max((now - from_text(row["oldest"])).total_seconds(), 0), 3)
    return {**count, "plugins": rows}
