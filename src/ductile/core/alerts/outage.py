"""The outage of a part of the gateway, which the condition `health` reports."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which a part failed."""

    part: str
    error: str
    since: datetime
    ended_at: datetime | None = None

    def has_lasted(self, seconds: float) -> bool:
        """Whether it still lasts, or did so for that time."""
        return self.ended_at is None or self.ended_at - self.since >= timedelta(seconds=seconds)

    @property
    def description(self) -> str:
        end = f" (until {to_text(self.ended_at)})" if self.ended_at is not None else ""
        return f"{self.error}{end}"
