"""What nobody works on: claims of nodes that are no more, and those we never heard of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from ductile.store.engines.api import Ledger, Tx

LOST_AFTER = timedelta(seconds=15)
"""A boot that nobody has held for so long is no more; what it had begun is begun anew."""
LOOKS = 3
"""So many looks after the first say so, at least: none counts for more than its part."""

Id = TypeVar("Id")
Release = Callable[[Tx, str, Id | None], int]
"""Frees what a boot has claimed, or one of it; how many that was."""


class Missing:
    """Boots that nobody holds, and for how long that has been seen.

    A living node may lose its lock for a moment, and takes it again. Between two looks that are
    far apart (we slept, the database was away, a clock was set) it may have had its lock back.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seen: dict[str, timedelta] = {}
        self._looked: datetime | None = None

    def lost(self, boots: Iterable[str], now: datetime) -> list[str]:
        """Those of `boots` that are no more: missing at every look, for long enough."""
        since = timedelta(0) if self._looked is None else now - self._looked
        counts = min(max(since, timedelta(0)), LOST_AFTER / LOOKS)
        self._looked = now
        before, self._seen = self._seen, {}
        for boot in boots:
            if self._ledger.boot_is_dead(boot):
                self._seen[boot] = before[boot] + counts if boot in before else timedelta(0)
        return [boot for boot, missing in self._seen.items() if missing >= LOST_AFTER]


class Abandoned(Generic[Id]):
    """Finds such claims for one lane, and frees them."""

    def __init__(self, ledger: Ledger, owner: str, release: Release[Id]) -> None:
        self._ledger, self._owner, self._release = ledger, owner, release
        self._missing = Missing(ledger)

    def recover(self, owners: Iterable[str]) -> None:
        """At a start: free what boots that nobody holds had claimed.

        Without waiting: if one of them comes back, a receiver knows what it gets a second time.
        """
        for owner in owners:
            if self._ledger.boot_is_dead(owner):
                self._free(owner)

    def release(
        self, under_way: Mapping[str, Iterable[Id]], held: Container[str], now: datetime
    ) -> int:
        """Free what nobody works on; how many were.

        `under_way` is what each boot has claimed, as the ledger has it; `held` is what this
        one knows of. What it does not know of was claimed by a commit that we were not told of.
        """
        others = [owner for owner in under_way if owner != self._owner]
        count = sum(self._free(owner) for owner in self._missing.lost(others, now))
        own = under_way.get(self._owner, ())
        return count + sum(self._free(self._owner, id) for id in own if str(id) not in held)

    def _free(self, owner: str, id: Id | None = None) -> int:
        return self._ledger.write(lambda tx: self._release(tx, owner, id))
