"""Rate limits by the generic cell rate algorithm: one stored time per key.

The stored time is when the key would be unused again if nothing more started (the theoretical
arrival time). Each start moves it by one interval; a start is allowed while it is less than
`burst` intervals ahead.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.core.flow.keys import FlowKey


@dataclass(frozen=True, slots=True)
class Rate:
    limit: int
    """Starts per period."""
    per: float
    """Seconds."""
    burst: int = 1
    """Starts that may follow each other without a delay, after a time without starts."""
    key: FlowKey | None = None

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.per / self.limit)

    def advance(self, used_until: datetime | None, now: datetime) -> datetime:
        """The time to store after a start now."""
        start = now if used_until is None else max(used_until, now)
        return start + self.interval

    def opens_at(self, used_until: datetime) -> datetime:
        """From when the next start is allowed."""
        return used_until - self.interval * (self.burst - 1)

    def describe(self) -> str:
        per = f"{self.per:g}s"
        return f"rate limit of {self.limit} per {per}"
