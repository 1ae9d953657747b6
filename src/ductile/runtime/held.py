"""What a lane has claimed and not ended yet, as this process knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Generic, TypeVar

from ductile.errors import LedgerError
from ductile.log import logger
from ductile.runtime.abandoned import Abandoned, Release
from ductile.store.ledger import Ledger, Tx

Id = TypeVar("Id")
T = TypeVar("T")
UnderWay = Mapping[str, Sequence[Id]]
"""What each boot has claimed, as the ledger has it."""


class Held(Generic[Id, T]):
    """Claims by the ids of their parcels. Thread-safe.

    What the ledger has as claimed by us and is not held is due again: so nothing may stay held
    that nobody is going to end.
    """

    def __init__(
        self,
        lane: str,
        ledger: Ledger,
        owner: str,
        under_way: Callable[[Tx], UnderWay[Id]],
        release: Release[Id],
    ) -> None:
        self._lane, self._ledger, self._under_way = lane, ledger, under_way
        self._abandoned = Abandoned(ledger, owner, release)
        self._claims: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def hold(self, id: str, claim: T) -> None:
        self._claims[id] = claim

    @contextmanager
    def ending(self, id: str) -> Iterator[T]:
        """Within it the claim's end is recorded. Whatever comes of that, it is held no more;
        only where the ledger is to be asked again it still is."""
        try:
            yield self._claims[id]
        except LedgerError:
            raise
        except BaseException:
            self._claims.pop(id, None)
            raise
        self._claims.pop(id, None)

    def recover(self) -> None:
        """At a start: what boots that are no more had claimed is due again."""
        self._abandoned.recover(self._ledger.read(self._under_way))

    def released(self, under_way: UnderWay[Id], now: datetime) -> bool:
        """Whether something is due again that nobody sends.

        That is what a node was sending which is no more, and what a claim of ours took of
        which we were not told that it was committed.
        """
        count = self._abandoned.release(under_way, self._claims, now)
        if count:
            logger(self._lane).warning("released what nobody sends", count=count)
        return bool(count)
