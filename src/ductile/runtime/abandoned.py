"""Claims that nobody works on: those of nodes that are no more, and those we never heard of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from ductile.store.ledger import Ledger, Tx

LOST_AFTER = timedelta(seconds=15)
"""A boot that nobody has held for so long is no more; what it was sending is due again."""

Id = TypeVar("Id")
Release = Callable[[Tx, str, Id | None], int]
"""Frees what a boot has claimed, or one of it; how many that was."""


class Abandoned(Generic[Id]):
    """Finds them for one lane, and frees them."""

    def __init__(self, ledger: Ledger, owner: str, release: Release[Id]) -> None:
        self._ledger, self._owner, self._release = ledger, owner, release
        self._lost: dict[str, datetime] = {}

    def recover(self, owners: Iterable[str]) -> None:
        """At a start: free what boots that are no more had claimed."""
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
        dead = {o for o in under_way if o != self._owner and self._ledger.boot_is_dead(o)}
        self._lost = {owner: self._lost.get(owner, now) for owner in dead}
        count = sum(self._free(o) for o, since in self._lost.items() if now - since >= LOST_AFTER)
        own = under_way.get(self._owner, ())
        return count + sum(self._free(self._owner, id) for id in own if str(id) not in held)

    def _free(self, owner: str, id: Id | None = None) -> int:
        return self._ledger.write(lambda tx: self._release(tx, owner, id))
