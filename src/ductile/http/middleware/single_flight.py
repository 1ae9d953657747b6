"""Concurrent callers of the same work share one execution."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Callers that arrive while `work` runs get its result. Used in the event loop only."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        task = self._task
        if task is None or task.done():
            task = self._task = asyncio.create_task(self._work())
        # A caller that is cancelled must not cancel the work of the others.
        return await asyncio.shield(task)

    def renew(self) -> None:
        """Have the next caller start anew; callers that wait already keep their task."""
        self._task = None


class RecentResult(Generic[T]):
    """As `SingleFlight`; callers also get the last result while it is younger than `seconds`."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], seconds: float) -> None:
        self._work, self._seconds = SingleFlight(work), seconds
        self._found: tuple[float, T] | None = None

    async def __call__(self) -> T:
        now = asyncio.get_running_loop().time()
        if self._found is None or now - self._found[0] >= self._seconds:
            self._found = now, await self._work()
        return self._found[1]
