"""Waiting for the end of jobs and pipeline instances."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ductile.engine.services import Services

T = TypeVar("T")
LOOK_AGAIN = 1.0
"""Seconds: what ends on another node is told by the stream, and a transaction that somebody leaves
open on the server holds that back."""


class JobWaiter:
    """Hears when one of the jobs or instances that it listens for ends. Lives in the loop."""

    def __init__(self, gateway: Services, *ids: str) -> None:
        self._gateway, self._loop = gateway, asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self._ids: set[str] = set()
        self.listen(*ids)

    def listen(self, *ids: str) -> None:
        """From now on; read the ledger afterwards, so that no end falls between the two."""
        for id in set(ids) - self._ids:
            self._ids.add(id)
            self._gateway.notice_bus.add_on_end(id, self._hear)

    def _hear(self) -> None:
        self._loop.call_soon_threadsafe(self._heard.set)

    async def watch(
        self, look: Callable[[], Awaitable[T]], over: Callable[[T], bool], seconds: float
    ) -> T:
        """What `look` finds once it is `over`, one has ended, or the time is up."""
        ends = self._loop.time() + seconds
        while True:
            # Before the look: one that was under way when it was heard may have come too early.
            heard = self._heard.is_set()
            found = await look()
            left = ends - self._loop.time()
            if over(found) or heard or left <= 0:
                return found
            turn = left if self._gateway.is_only_writer else min(left, LOOK_AGAIN)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._heard.wait(), turn)

    def close(self) -> None:
        for id in self._ids:
            self._gateway.notice_bus.remove_on_end(id, self._hear)
