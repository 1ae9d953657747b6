"""Waking idle workers: as many as there is work for, and never one too few."""

from __future__ import annotations

import threading


class Bell:
    """Rings are kept while nobody waits, but no more of them than there are workers."""

    def __init__(self, workers: int) -> None:
        self._condition = threading.Condition(threading.Lock())
        self._most = workers
        self._rings = 0

    def ring(self, count: int = 1) -> None:
        with self._condition:
            self._rings = min(self._rings + count, self._most)
            self._condition.notify(count)

    def ring_all(self) -> None:
        self.ring(self._most)

    def wait(self, timeout: float | None = None) -> bool:
        """Take one ring, or wait for it; False where `timeout` passed without one."""
        with self._condition:
            if not self._rings:
                self._condition.wait(timeout)
            if not self._rings:
                return False
            self._rings -= 1
            return True
