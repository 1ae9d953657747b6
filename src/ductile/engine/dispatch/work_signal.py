"""The signal that jobs are ready, by which other threads wake the dispatcher."""

from __future__ import annotations

import threading
from collections.abc import Callable


def _do_nothing() -> None:
    """There is no dispatcher to wake."""


class WorkSignal:
    """How many jobs are known to be ready, and the way to wake the dispatcher. For any thread.

    The dispatcher claims for as many idle workers as jobs were notified. No more notifications are
    kept than there are workers.
    """

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._limit = workers
        self._ready = 0
        self._armed = False
        self._wake: Callable[[], None] = _do_nothing

    def resize(self, workers: int) -> None:
        """Keep notifications for this number of workers; any number of jobs may be ready."""
        with self._lock:
            self._limit = workers
        self.notify_all()

    def attach(self, wake: Callable[[], None] | None) -> None:
        """Set how to wake the dispatcher; None where there is none any more."""
        with self._lock:
            self._wake = wake or _do_nothing

    def notify(self, count: int = 1) -> None:
        """`count` jobs became ready: wake the dispatcher, if it waits for jobs."""
        with self._lock:
            self._ready = min(self._ready + count, self._limit)
            if self._armed:
                self._armed = False
                self._wake()

    def notify_all(self) -> None:
        """Any number of jobs may be ready."""
        self.notify(self._limit)

    def wake(self) -> None:
        """Wake the dispatcher for another reason than a job."""
        with self._lock:
            self._wake()

    @property
    def pending(self) -> int:
        """How many notified jobs the dispatcher has not tried to claim yet."""
        return self._ready

    def take(self, limit: int) -> int:
        """Take up to `limit` notifications, and return how many."""
        with self._lock:
            taken = min(self._ready, limit)
            self._ready -= taken
            return taken

    def arm(self) -> bool:
        """Have the next `notify` wake the dispatcher; False where one has come already."""
        with self._lock:
            self._armed = not self._ready
            return self._armed

    def disarm(self) -> None:
        with self._lock:
            self._armed = False
