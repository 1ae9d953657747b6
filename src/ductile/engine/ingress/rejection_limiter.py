"""How often equal rejections and errors are recorded: an attacker must not fill log or ledger."""

from __future__ import annotations

import threading
from collections import Counter
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
            return self._suppressed.pop(key, 0)
