"""Figures about finished attempts and the queue, by plugin."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from ductile.clock import from_text, to_text
from ductile.engine.services import Services
from ductile.store import outcomes
from ductile.store.engines.api import Ledger

HOURS = 24
HOUR_DIGITS = len("2026-11-16T21")
AHEAD = timedelta(minutes=1)
"""How far the clock of another node may be ahead."""


def summarize_attempts(services: Services, window: timedelta) -> dict[str, Any]:
    """Return the attempts that ended within the window, by plugin and status."""
    start = services.clock.now() - window
    since = to_text(start)
    rows = services.ledger.read(
        lambda tx: tx.dicts(
            "finished_by_plugin", first=outcomes.find_first_since(tx, start), since=since
        )
    )
    total: dict[str, int] = {}
    for row in rows:
        total[row["status"]] = total.get(row["status"], 0) + row["attempts"]
        row["mean_ms"] = None if row["mean_ms"] is None else round(float(row["mean_ms"]), 1)
    return {"since": since, "total": total, "plugins": rows}


class HourlyOutcomes:
    """The attempts that ended in each of the last 24 hours.

    Each attempt is counted once: what ended more than `COMMIT_DELAY` ago is kept, and only the rest
    is read again.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._kept: Counter[tuple[str, str, str]] = Counter()
        self._kept_until: datetime | None = None

    def summarize(self, now: datetime) -> dict[str, Any]:
        """Return the hours, the oldest first, each with its attempts by plugin and status."""
        this_hour = now.replace(minute=0, second=0, microsecond=0)
        hours = [this_hour - timedelta(hours=n) for n in reversed(range(HOURS))]
        # A later start of the window than the last time forgets hours; it never adds one.
        with self._lock:
            self._keep(max(hours[0], self._kept_until or hours[0]), now - outcomes.COMMIT_DELAY)
            oldest = to_text(hours[0])[:HOUR_DIGITS]
            self._kept = Counter({key: n for key, n in self._kept.items() if key[0] >= oldest})
            counts = self._kept + self._count(self._kept_until or hours[0], now + AHEAD)
        by_hour: dict[str, dict[str, dict[str, int]]] = {}
        for (hour, plugin, status), attempts in sorted(counts.items()):
            by_hour.setdefault(hour, {}).setdefault(plugin, {})[status] = attempts
        starts = [to_text(hour) for hour in hours]
        return {
            "since": starts[0],
            "hours": [
                {"start": start, "plugins": by_hour.get(start[:HOUR_DIGITS], {})}
                for start in starts
            ],
        }

    def _keep(self, since: datetime, until: datetime) -> None:
        if until > since:
            self._kept.update(self._count(since, until))
            self._kept_until = until

    def _count(self, since: datetime, until: datetime) -> Counter[tuple[str, str, str]]:
        found = self._ledger.read(lambda tx: outcomes.count_by_hour(tx, since, until))
        return Counter({(row.hour, row.plugin, row.status): row.attempts for row in found})


def summarize_queue(services: Services) -> dict[str, Any]:
    """Return the queued and running jobs by plugin, and the age of the oldest."""
    rows = services.ledger.read(lambda tx: tx.dicts("queue_by_plugin"))
    now = services.clock.now()
    count = {"queued": 0, "running": 0}
    for row in rows:
        count[row["status"]] += row["jobs"]
        row["oldest_seconds"] = round(max((now - from_text(row["oldest"])).total_seconds(), 0), 3)
    return {**count, "plugins": rows}
