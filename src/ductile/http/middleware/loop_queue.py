"""Transactions of the event loop, and their results: one wake-up for all that come together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from ductile.errors import DuctileError

if TYPE_CHECKING:
    from ductile.store.engines.api import Ledger, Work

Receiver = Callable[[Any, BaseException | None], None]
"""Takes a result or an error, in the event loop."""

_queues: WeakKeyDictionary[asyncio.AbstractEventLoop, LoopQueue] = WeakKeyDictionary()


class LoopQueue:
    """The results that one event loop waits for. `put` may be called in any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake, self._call_soon = loop.call_soon_threadsafe, loop.call_soon
        self._submitted: list[tuple[Ledger, Work[Any], Receiver]] = []
        self._results: deque[tuple[Receiver, Any, BaseException | None]] = deque()
        self._woken = False

    @staticmethod
    def current() -> LoopQueue:
        """Return the queue of the event loop that runs in this thread."""
        loop = asyncio.get_running_loop()
        queue = _queues.get(loop)
        if queue is None:
            queue = _queues[loop] = LoopQueue(loop)
        return queue

    def submit(self, ledger: Ledger, work: Work[Any], receiver: Receiver) -> None:
        """Commit `work` with those that the loop submits in the same turn.

        Otherwise the first of them would wake the writer, which would commit it alone.
        """
        if not self._submitted:
            self._call_soon(self._submit_all)
        self._submitted.append((ledger, work, receiver))

    def _submit_all(self) -> None:
        submitted, self._submitted = self._submitted, []
        for ledger, work, receiver in submitted:
            try:
                ledger.submit(work, partial(self.put, receiver))
            except DuctileError as error:
                self.put(receiver, None, error)

    def put(self, receiver: Receiver, result: Any, error: BaseException | None) -> None:
        self._results.append((receiver, result, error))
        if not self._woken:
            self._woken = True
            self._wake(self._drain)

    def _drain(self) -> None:
        # Reset first: a result that is put from now on is either seen below or wakes us again.
        self._woken = False
        try:
            while self._results:
                receiver, result, error = self._results.popleft()
                receiver(result, error)
        finally:
            # The loop logs a receiver's error; the other receivers still get their results.
            if self._results and not self._woken:
                self._woken = True
                self._wake(self._drain)


def resolve_future(future: asyncio.Future[Any]) -> Receiver:
    """Return a receiver that completes the future unless it was cancelled."""

    def receive(result: Any, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)

    return receive
