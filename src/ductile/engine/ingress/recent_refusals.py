"""How many signed requests of senders were refused in the last hour, by endpoint and reason.

Nothing is written: an attacker who sends a million requests costs a few counters.
"""

from __future__ import annotations

import threading
from datetime import datetime
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, to_text

MINUTES = 60
"""Counts are kept per minute, for as many minutes."""
MAX_SERIES = 1000
"""Pairs of endpoint and reason; repeated reloads may introduce more."""
OTHER = "other"


class _Minutes:
    """A count per minute of the last hour."""

    __slots__ = ("counts", "last_at", "minutes")

    def __init__(self) -> None:
        self.minutes = [-1] * MINUTES
        self.counts = [0] * MINUTES
        self.last_at: datetime | None = None

    def add(self, minute: int, at: datetime) -> None:
        slot = minute % MINUTES
        if self.minutes[slot] != minute:
            self.minutes[slot], self.counts[slot] = minute, 0
        self.counts[slot] += 1
        self.last_at = at

    def sum(self, minute: int) -> int:
        first = minute - MINUTES + 1
        return sum(c for m, c in zip(self.minutes, self.counts, strict=True) if m >= max(first, 0))


@dataclass(frozen=True, slots=True)
class RefusedWebhooks:
    """Requests of the last hour that were refused for the same reason."""

    endpoint: str | None
    """The path; None for requests to paths that no endpoint has."""
    reason: str
    requests: int
    last_at: datetime

    def describe(self) -> dict[str, Any]:
        return {
            "endpoint": self.endpoint,
            "reason": self.reason,
            "requests": self.requests,
            "last_at": to_text(self.last_at),
        }


class RecentRefusals:
    """Counts refused requests since the start of this node, for an hour. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._series: dict[tuple[str | None, str], _Minutes] = {}

    def count(self, endpoint: str | None, reason: str) -> None:
        """`endpoint` is a configured path, never the path of an unknown request."""
        minute, key = self._minute(), (endpoint, reason)
        with self._lock:
            if key not in self._series and len(self._series) >= MAX_SERIES:
                self._forget_old(minute)
                key = key if len(self._series) < MAX_SERIES else (OTHER, OTHER)
            self._series.setdefault(key, _Minutes()).add(minute, self._clock.now())

    def read(self) -> list[RefusedWebhooks]:
        """The refused requests of the last hour, the most frequent first."""
        minute = self._minute()
        with self._lock:
            self._forget_old(minute)
            found = [
                RefusedWebhooks(endpoint, reason, series.sum(minute), series.last_at)
                for (endpoint, reason), series in self._series.items()
                if series.last_at is not None
            ]
        return sorted(found, key=lambda row: (-row.requests, row.endpoint or "", row.reason))

    def _minute(self) -> int:
        return int(self._clock.monotonic() // 60)

    def _forget_old(self, minute: int) -> None:
        for key in [key for key, series in self._series.items() if not series.sum(minute)]:
            del self._series[key]
