"""Transactions that were submitted, until somebody commits them.

Whoever commits on his own account takes along what waits. While that goes on all the time, the
writer is not called for each one: it only looks, now and then, whether something was left lying.
"""

from __future__ import annotations

import queue
import time
from collections import deque

from ductile.store.engines.pending import Pending

PATROL = 0.005
"""Seconds between two looks, and after which nobody is waited for."""
CARRIER_GONE = 0.01
"""Seconds after which nobody is expected to come by."""


class Inbox:
    """Filled by any thread, and emptied by whoever commits."""

    def __init__(self) -> None:
        self._waiting: deque[Pending] = deque()
        self._since = 0.0
        """When the oldest of them came."""
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._called = self._patrolling = self._closed = False
        self._carried_at, self._company = 0.0, 0

    def put(self, pending: Pending) -> None:
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(pending)
        # After it was put there: who stops patrolling, or takes a call, looks there afterwards.
        if not self._patrolling:
            self._call()

    def take(self, most: int, *, by_carrier: bool = False) -> list[Pending]:
        """What waits, in order."""
        found: list[Pending] = []
        try:
            while len(found) < most:
                found.append(self._waiting.popleft())
        except IndexError:
            pass
        self._company = len(found)
        if by_carrier:
            self._carried_at = time.monotonic()
        return found

    def wait(self) -> bool:
        """Block the writer until there is something to commit; False when there never will be."""
        while not self._closed:
            self._patrolling = self._is_taken_along()
            if not self._waiting:
                self._listen(PATROL if self._patrolling else None)
            elif self._patrolling and (left := self._since + PATROL - time.monotonic()) > 0:
                self._listen(left)
            else:
                return True
        return bool(self._waiting)

    def close(self) -> None:
        """What waits is left to the writer, who comes to an end."""
        self._closed = True
        self._call()

    def _is_taken_along(self) -> bool:
        """Where requests come one by one, each is a commit of its own, at once."""
        return self._company > 1 and time.monotonic() - self._carried_at < CARRIER_GONE

    def _call(self) -> None:
        if not self._called:
            self._called = True
            self._calls.put(None)

    def _listen(self, seconds: float | None) -> None:
        try:
            self._calls.get(timeout=seconds)
        except queue.Empty:
            return
        self._called = False
