"""Claims of deliveries and relay messages that no process works on any more."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime
from typing import Generic, TypeVar

from ductile.engine.recovery.dead_nodes import MissingBoots
from ductile.store.engines.api import Ledger, Tx

Id = TypeVar("Id")
Release = Callable[[Tx, str, Id | None], int]
"""Makes the claims of a boot, or one of them, due again; returns how many."""


class AbandonedClaims(Generic[Id]):
    """Finds claims that no process works on, and makes them due again."""

    def __init__(self, ledger: Ledger, owner: str, release: Release[Id]) -> None:
        self._ledger, self._owner, self._release = ledger, owner, release
        self._missing = MissingBoots(ledger)

    def recover(self, owners: Iterable[str]) -> None:
        """Release the claims of dead boots, at a start.

        It does not wait: if a boot is alive after all, receivers recognize the repetition.
        """
        for owner in owners:
            if self._ledger.boot_is_dead(owner):
                self._free(owner)

    def release(
        self, claimed: Mapping[str, Iterable[Id]], in_flight: Container[str], now: datetime
    ) -> int:
        """Release abandoned claims; returns how many.

        `claimed` are the claims in the ledger by boot, `in_flight` the ids that this process works
        on. Another claim of this boot comes from a commit that was not acknowledged.
        """
        others = [owner for owner in claimed if owner != self._owner]
        count = sum(self._free(owner) for owner in self._missing.find_lost(others, now))
        own = claimed.get(self._owner, ())
        return count + sum(self._free(self._owner, id) for id in own if str(id) not in in_flight)

    def _free(self, owner: str, id: Id | None = None) -> int:
        return self._ledger.write(lambda tx: self._release(tx, owner, id))
