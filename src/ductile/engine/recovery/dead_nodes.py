"""Which boots and nodes are dead: seen by their locks and by the rows that they renew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ductile.store.engines.api import Ledger

LOST_AFTER = timedelta(seconds=15)
"""A boot whose lock has been free for this long is dead; its work is started again."""
FENCE_AFTER = LOST_AFTER
"""The sessions of a node that has not renewed its row for this long are ended."""
MIN_CHECKS = 3
"""Minimum number of checks over that time; one check counts for at most its share."""

NodeRow = Mapping[str, Any]
"""A row of `nodes.list_nodes`."""


class MissingBoots:
    """Boots whose lock is free, and for how long that has been observed.

    A living node may lose its lock for a moment and take it again. It may have held it between two
    checks that are far apart (a suspended machine, a database outage, a changed clock).
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._missing_for: dict[str, timedelta] = {}
        self._checked_at: datetime | None = None

    def find_lost(self, boots: Iterable[str], now: datetime) -> list[str]:
        """The dead ones of `boots`: missing at every check for `LOST_AFTER`."""
        since = timedelta(0) if self._checked_at is None else now - self._checked_at
        counts = min(max(since, timedelta(0)), LOST_AFTER / MIN_CHECKS)
        self._checked_at = now
        before, self._missing_for = self._missing_for, {}
        for boot in boots:
            if self._ledger.boot_is_dead(boot):
                self._missing_for[boot] = before[boot] + counts if boot in before else timedelta(0)
        return [boot for boot, missing in self._missing_for.items() if missing >= LOST_AFTER]


class StaleNodes:
    """Registered nodes that do not renew their rows, and for how long that has been observed.

    Two clocks have to agree: the database's, by which the row is old, and this node's, by which it
    has seen no renewal although the database answered. After a database outage all rows are old.
    """

    def __init__(self) -> None:
        self._unchanged_for: dict[str, tuple[str, timedelta]] = {}
        self._checked_at: datetime | None = None

    def find_stale(self, rows: Iterable[NodeRow], now: datetime) -> list[NodeRow]:
        """The rows that were not renewed for `FENCE_AFTER`, except those of stopped nodes."""
        since = timedelta(0) if self._checked_at is None else now - self._checked_at
        counts = min(max(since, timedelta(0)), FENCE_AFTER / MIN_CHECKS)
        self._checked_at = now
        before, self._unchanged_for = self._unchanged_for, {}
        stale = []
        for row in rows:
            if row["stopped_at"] is not None:
                continue
            seen_at, unchanged = before.get(row["boot"], ("", timedelta(0)))
            unchanged = unchanged + counts if seen_at == row["seen_at"] else timedelta(0)
            self._unchanged_for[row["boot"]] = (row["seen_at"], unchanged)
            if min(unchanged, timedelta(seconds=row["seconds_since_seen"])) >= FENCE_AFTER:
                stale.append(row)
        return stale
