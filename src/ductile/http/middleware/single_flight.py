"""What several want at the same time is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Lives in the loop. Who asks while `work` is under way gets what it comes to."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._under_way: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        task = self._under_way
        if task is None or task.done():
            task = self._under_way = asyncio.create_task(self._work())
        # One who leaves does not take it from the others.
        return await asyncio.shield(task)

    def renew(self) -> None:
        """What is under way is for those who wait for it; the next begins another."""
        self._under_way = None
