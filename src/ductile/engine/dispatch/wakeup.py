"""Waking the dispatcher: for as many jobs as there is work for, and never for one too few."""

from __future__ import annotations

import threading
from collections.abc import Callable


def _nobody() -> None:
    """There is no dispatcher to wake."""


class WorkSignal:
    """Rings are kept until they are taken, but no more of them than there are workers."""

    def __init__(self, workers: int) -> None:
        self._lock = threading.Lock()
        self._most = workers
        self._rings = 0
        self._knocked = self._listening = self._idle = False
        self._wake: Callable[[], None] = _nobody

    def attach(self, wake: Callable[[], None] | None) -> None:
        """Whom to wake; None is nobody from now on."""
        with self._lock:
            self._wake = wake or _nobody

    def ring(self, count: int = 1) -> None:
        """So many jobs are ready: wakes whoever listens with idle workers."""
        with self._lock:
            self._rings = min(self._rings + count, self._most)
            if self._listening and self._idle:
                self._rouse()

    def ring_all(self) -> None:
        self.ring(self._most)

    def knock(self) -> None:
        """Wake whoever listens, for another reason than a job."""
        with self._lock:
            self._knocked = True
            if self._listening:
                self._rouse()

    def take(self, most: int) -> int:
        """Take the rings that there are, up to `most`; how many."""
        with self._lock:
            taken = min(self._rings, most)
            self._rings -= taken
            return taken

    def listen(self, *, idle: bool) -> bool:
        """Want to be woken from now on; False where there is a reason to be awake already.

        Rings are a reason where a worker is `idle`.
        """
        with self._lock:
            awake = self._knocked or (idle and self._rings > 0)
            self._knocked = False
            self._listening, self._idle = not awake, idle
            return not awake

    def hush(self) -> None:
        """Want to be woken no more."""
        with self._lock:
            self._listening = self._knocked = False

    def _rouse(self) -> None:
        # Once is enough.
        self._listening = False
        self._wake()
