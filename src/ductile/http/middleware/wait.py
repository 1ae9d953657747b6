"""Waiting for the end of jobs and pipeline runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
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
        self._callbacks: dict[str, Callable[[], None]] = {}
        """By id; those that were called are removed."""
        self._subscribe(ids)

    def _subscribe(self, ids: Collection[str]) -> bool:
        """Watch the ids; returns whether one of them is new."""
        new = set(ids) - self._callbacks.keys()
        for id in new:
            self._callbacks[id] = partial(self._report_end, id)
            self._services.notice_bus.add_on_end(id, self._callbacks[id])
        return bool(new)

    def _report_end(self, id: str) -> None:
        self._loop.call_soon_threadsafe(self._on_end, id)

    def _on_end(self, id: str) -> None:
        self._callbacks.pop(id, None)
        self._ended.set()

    async def wait(
        self,
        read: Callable[[], Awaitable[T]],
        find_awaited: Callable[[T], Collection[str]],
        seconds: float,
    ) -> T:
        """Return what `read` finds once nothing of it is awaited, or the time is up.

        `find_awaited` returns jobs or runs of which one has to end before the next read; nothing
        if the wait is over.
        """
        deadline = self._loop.time() + seconds
        while True:
            self._ended.clear()
            found = await read()
            awaited = find_awaited(found)
            left = deadline - self._loop.time()
            if not awaited or left <= 0:
                return found
            if self._subscribe(awaited):
                # Read again: it may have ended between the read and the subscription.
                continue
            timeout = left if self._services.is_only_writer else min(left, POLL_INTERVAL)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), timeout)

    def close(self) -> None:
        for id, callback in self._callbacks.items():
            self._services.notice_bus.remove_on_end(id, callback)
