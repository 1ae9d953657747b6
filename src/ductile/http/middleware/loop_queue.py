"""From the ledger's threads to the loop: one wake-up for all the answers that have gathered."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

Receiver = Callable[[Any, BaseException | None], None]
"""Takes a result or an error, in the loop."""

_boxes: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()


class LoopQueue:
    """The answers that one loop waits for. `put` may be called in any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake = loop.call_soon_threadsafe
        self._letters: deque[tuple[Receiver, Any, BaseException | None]] = deque()
        self._woken = False

    @staticmethod
    def here() -> LoopQueue:
        """That of the loop that runs in this thread."""
        loop = asyncio.get_running_loop()
        box = _boxes.get(loop)
        if box is None:
            box = _boxes[loop] = LoopQueue(loop)
        return box

    def put(self, receiver: Receiver, result: Any, error: BaseException | None) -> None:
        self._letters.append((receiver, result, error))
        if not self._woken:
            self._woken = True
            self._wake(self._open)

    def _open(self) -> None:
        # First: whatever is put from now on either is seen below or wakes us again.
        self._woken = False
        try:
            while self._letters:
                receiver, result, error = self._letters.popleft()
                receiver(result, error)
        finally:
            # A receiver's bug is the loop's to tell; the others have their letters all the same.
            if self._letters and not self._woken:
                self._woken = True
                self._wake(self._open)


def resolving(future: asyncio.Future[Any]) -> Receiver:
    """Hands what comes to who awaits the future; nobody may, any more."""

    def receive(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return receive
