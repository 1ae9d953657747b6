"""When each part of the gateway began to fail, and when it worked again."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime

from ductile.core.alerts.outage import Outage


class OutageHistory:
    """The outage of each part until its end has been reported. Thread-safe.

    A part that fails again before that continues its outage.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Outage] = {}
        self._reported: dict[str, datetime] = {}
        """The end of the last outage of a part that was reported."""

    def update(self, found: Iterable[Outage], now: datetime) -> None:
        """Compare with the outages that are known now; those of other parts have ended."""
        with self._lock:
            lasting = {part for part, known in self._known.items() if known.ended_at is None}
            for outage in found:
                lasting.discard(outage.part)
                self._add(outage)
            for part in lasting:
                self._known[part] = replace(self._known[part], ended_at=now)

    def _add(self, outage: Outage) -> None:
        reported, known = self._reported.get(outage.part), self._known.get(outage.part)
        if reported and outage.ended_at is not None and outage.ended_at <= reported:
            return
        since = min(outage.since, known.since) if known else outage.since
        self._known[outage.part] = replace(outage, since=since)

    def read(self) -> tuple[Outage, ...]:
        with self._lock:
            return tuple(self._known.values())

    def forget(self, reported: Iterable[Outage]) -> None:
        """Delete the reported ones that have ended."""
        with self._lock:
            for outage in reported:
                if outage.ended_at is not None and self._known.get(outage.part) == outage:
                    del self._known[outage.part]
                    self._reported[outage.part] = outage.ended_at
