"""Counts of finished attempts by time, without reading the whole log."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import to_text
from ductile.store.engines.api import Tx

COMMIT_DELAY = timedelta(minutes=10)
"""Rows of the log are in the order of their commits: how much earlier an attempt may have ended."""


@dataclass(frozen=True, slots=True)
class HourlyCount:
    """The attempts of a plugin that ended with this status within an hour."""

    hour: str
    """`2026-11-16T21`, in UTC."""
    plugin: str
    status: str
    attempts: int


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """The attempts that ended within a time, of a plugin, a pipeline or a schedule."""

    kind: str
    name: str
    """Of a schedule, `plugin/id`."""
    attempts: int
    failed: int


def find_first_since(tx: Tx, since: datetime) -> int:
    """Return a place in the log before which no attempt ended at `since` or later."""
    low, high = tx.all("log_bounds")[0]
    if low is None:
        return 0
    earliest = to_text(since - COMMIT_DELAY)
    while low < high:
        middle = (low + high) // 2
        # The row at `middle` may be deleted: the next one is used instead.
        seq, completed_at = tx.all("log_row_from", seq=middle)[0]
        if completed_at < earliest:
            low = seq + 1
        else:
            high = middle
    return int(low)


def count_by_hour(tx: Tx, since: datetime, until: datetime) -> list[HourlyCount]:
    """Count the attempts that ended at `since` or later and before `until`."""
    first = find_first_since(tx, since)
    times = {"since": to_text(since), "until": to_text(until)}
    return [HourlyCount(*row) for row in tx.all("outcomes_by_hour", first=first, **times)]


def count_by_subject(
    tx: Tx, since: datetime, until: datetime, started: datetime | None
) -> list[OutcomeCount]:
    """Count the attempts that ended within the time, and of `started` only what started then."""
    times = {
        "first": find_first_since(tx, since),
        "since": to_text(since),
        "until": to_text(until),
        "started": "" if started is None else to_text(started),
    }
    found = []
    for kind in ("plugin", "pipeline", "schedule"):
        found += [OutcomeCount(kind, *row) for row in tx.all(f"outcomes_of_{kind}s", **times)]
    return found
