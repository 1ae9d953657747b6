"""Rate limits by the generic cell rate algorithm: one stored time per key.

The stored time is when the key would be unused again if nothing more started (the theoretical
arrival time). Each start moves it by one interval; a start is allowed while it is less than
`burst` intervals ahead.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.core.flow.keys import FlowKey

CLOCK_TOLERANCE = timedelta(minutes=1)
"""How far the clock of another node may be ahead."""


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
        if used_until is None or self._is_impossible(used_until, now):
            return now + self.interval
        return max(used_until, now) + self.interval

    def opens_at(self, used_until: datetime, now: datetime) -> datetime:
        """From when the next start is allowed."""
        if self._is_impossible(used_until, now):
            return now
        return used_until - self.interval * (self.burst - 1)

    def _is_impossible(self, used_until: datetime, now: datetime) -> bool:
        """Whether the time was stored under a slower rate, or before the clock was set back."""
        return used_until > now + self.interval * self.burst + CLOCK_TOLERANCE

    def describe(self) -> str:
        per = f"{self.per:g}s"
        return f"rate limit of {self.limit} per {per}"
