"""Waiting for the end of jobs and pipeline runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from ductile.engine.services import Services

T = TypeVar("T")
POLL_INTERVAL = 1.0
"""Seconds between reads where other nodes write: their notices may be held back by an open
transaction on the server."""


class JobWaiter:
    """Is woken when one of its jobs or runs ends. Used in the event loop only."""

    def __init__(self, services: Services, *ids: str) -> None:
        self._services, self._loop = services, asyncio.get_running_loop()
        self._ended = asyncio.Event()
        self._ids: set[str] = set()
        self.subscribe(*ids)

    def subscribe(self, *ids: str) -> None:
        """Watch more ids. Read the ledger afterwards, so that no end is missed in between."""
        for id in set(ids) - self._ids:
            self._ids.add(id)
            self._services.notice_bus.add_on_end(id, self._on_end)

    def _on_end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    async def wait(
        self, read: Callable[[], Awaitable[T]], is_done: Callable[[T], bool], seconds: float
    ) -> T:
        """Return what `read` finds once it is done, an id has ended, or the time is up."""
        deadline = self._loop.time() + seconds
        while True:
            # Look at the event first: a read that had begun when it was set may be too old.
            ended = self._ended.is_set()
            found = await read()
            left = deadline - self._loop.time()
            if is_done(found) or ended or left <= 0:
                return found
            timeout = left if self._services.is_only_writer else min(left, POLL_INTERVAL)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), timeout)

    def close(self) -> None:
        for id in self._ids:
            self._services.notice_bus.remove_on_end(id, self._on_end)
