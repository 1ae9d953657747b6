"""From commits to whoever waits: the notices' ring, and callbacks by job or instance id."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from ductile.core.lifecycle import ENDED
from ductile.store.ledger import StoredNotice

RING = 10_000
_ENDS = frozenset(f"job.{status}" for status in ENDED) | {
    "pipeline.ended",
    "pipeline.failed",
    "pipeline.skipped",
}


class Bridge:
    """Thread-safe. Callbacks run in the committing thread: they must not block."""

    def __init__(self) -> None:
        self.ring: deque[StoredNotice] = deque(maxlen=RING)
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._watching: list[Callable[[list[StoredNotice]], None]] = []

    def publish(self, notices: list[StoredNotice]) -> None:
        with self._lock:
            self.ring.extend(notices)
            called = [
                callback
                for notice in notices
                if self._waiting and notice.type in _ENDS and notice.job_id is not None
                for callback in self._waiting.pop(notice.job_id, ())
            ]
        for callback in called:
            callback()
        for watcher in self._watching:
            watcher(notices)

    def watch(self, watcher: Callable[[list[StoredNotice]], None]) -> None:
        """Call `watcher` after each commit, with its notices."""
        self._watching.append(watcher)

    def since(self, cursor: int) -> list[StoredNotice] | None:
        """The notices after `cursor`; None where the ring does not reach back so far."""
        with self._lock:
            if not self.ring or self.ring[0].id > cursor + 1:
                return None
            found = list(takewhile(lambda notice: notice.id > cursor, reversed(self.ring)))
        return found[::-1]

    def when_ended(self, job_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the job ends. Register first, then read the ledger."""
        with self._lock:
            self._waiting.setdefault(job_id, []).append(callback)

    def forget(self, job_id: str, callback: Callable[[], None]) -> None:
        with self._lock:
            callbacks = self._waiting.get(job_id, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._waiting.pop(job_id, None)
