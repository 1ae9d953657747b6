"""Debounce: of events that follow each other closely, only the last one starts a job."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.core.flow.keys import SEPARATOR, FlowKey
from ductile.core.jobs.limits import fits
from ductile.model import Json

LONGEST_SERIES = 400
"""Bytes; a longer name of a series is replaced by its hash."""
DEFAULT_WAITS = 10
"""Without `max_wait`, a series waits for this many times its `wait`."""


@dataclass(frozen=True, slots=True)
class Series:
    """The series that an event belongs to: the events of one target with the same key."""

    name: str
    wait: float
    max_wait: float

    def due_at(self, since: datetime, now: datetime) -> datetime:
        """When the job of an event at `now` starts; the series began at `since`."""
        latest = since + timedelta(seconds=self.max_wait)
        return max(now, min(now + timedelta(seconds=self.wait), latest))


@dataclass(frozen=True, slots=True)
class Debounce:
    """The debounce of one target: a pipeline, a route or a webhook endpoint."""

    target: str
    wait: float
    max_wait: float
    key: FlowKey | None = None

    def series(self, payload: Json) -> Series:
        key = "" if self.key is None else self.key.render(payload)
        name = f"{self.target}{SEPARATOR}{key}"
        if not fits(name, LONGEST_SERIES):
            name = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
        return Series(name, self.wait, self.max_wait)


def pipeline_target(name: str) -> str:
    return f"pipeline:{name}"


def route_target(source: str, event_type: str, to: str) -> str:
    return SEPARATOR.join((f"route:{source}", event_type, to))


def webhook_target(path: str) -> str:
    return f"webhook:{path}"
