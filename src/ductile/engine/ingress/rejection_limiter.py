"""How often equal rejections and errors are recorded: an attacker must not fill log or ledger."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta

MAX_PER_MINUTE = 10
"""Recorded rejections per key."""
MINUTE = timedelta(minutes=1)


class RejectionLimiter:
    """Counts rejections per key: the id of a webhook, a reason, a line of code. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[int | str, tuple[datetime, int]] = {}
        self._suppressed: Counter[int | str] = Counter()
        self._summaries: dict[int | str, Callable[[int], None]] = {}
        """How to record the suppressed ones of a key when its minute is over."""

    def admit(self, key: int | str, now: datetime) -> int | None:
        """The number of rejections suppressed since the last recorded one; None suppresses this."""
        with self._lock:
            since, count = self._minutes.get(key, (now, 0))
            if not timedelta(0) <= now - since < MINUTE:
                since, count = now, 0
            self._minutes[key] = since, count + 1
            if count >= MAX_PER_MINUTE:
                self._suppressed[key] += 1
                return None
            self._summaries.pop(key, None)
            return self._suppressed.pop(key, 0)

    def record(
        self,
        key: int | str,
        now: datetime,
        record: Callable[[int], None],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """Record a rejection, or the last of those that are suppressed with the number of others.

        `record` gets the number of unrecorded rejections before the one that it records: its calls
        and the sum of those numbers are the exact count of rejections, also after a flood that
        ends. `later` calls back after so many seconds.
        """
        unrecorded = self.admit(key, now)
        if unrecorded is not None:
            record(unrecorded)
            return
        with self._lock:
            scheduled = key in self._summaries
            self._summaries[key] = record
        if not scheduled:
            later(MINUTE.total_seconds(), lambda: self._summarize(key))

    def summarize(self) -> None:
        """Record what is suppressed now: before a stop, which would forget it."""
        with self._lock:
            keys = list(self._summaries)
        for key in keys:
            self._summarize(key)

    def _summarize(self, key: int | str) -> None:
        with self._lock:
            record = self._summaries.pop(key, None)
            count = self._suppressed.pop(key, 0) if record is not None else 0
        if record is not None and count:
            record(count - 1)
