"""Waiting for an end: what ends while the ledger is read is not missed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing
from typing import cast

from ductile.engine.gateway import Gateway
from ductile.http.middleware.wait import JobWaiter

SECONDS = 20.0


class House:
    """As much of a gateway as a vigil needs."""

    is_only_writer = True

    def __init__(self) -> None:
        self.notice_bus = self
        self.ring: Callable[[], None] = lambda: None

    def add_on_end(self, id: str, ring: Callable[[], None]) -> None:
        self.ring = ring

    def remove_on_end(self, id: str, ring: Callable[[], None]) -> None:
        """Nothing rings any more."""


def watched(looks: list[str], rings_during: int) -> str:
    """What comes of watching, where the end comes in the midst of this look."""

    async def watch() -> str:
        house, count = House(), 0

        async def look() -> str:
            nonlocal count
            found = looks[min(count, len(looks) - 1)]
            if count == rings_during:
                house.ring()
                await asyncio.sleep(0)
            count += 1
            return found

        with closing(JobWaiter(cast(Gateway, house), "job")) as vigil:
            return await vigil.wait(look, lambda found: found == "ended", SECONDS)

    return asyncio.run(asyncio.wait_for(watch(), 5))


def test_an_end_that_comes_while_the_ledger_is_read_is_read_again() -> None:
    assert watched(["running", "ended"], rings_during=0) == "ended"


def test_what_is_over_at_the_first_look_is_not_waited_for() -> None:
    assert watched(["ended"], rings_during=99) == "ended"
