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
