"""The lease of this node: how long ago it proved to the database that it is alive.

A call to the database may take as long as it wants. This clock does not wait for it: the jobs of a
node that cannot prove that it is alive end before other nodes start them again.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock
from ductile.log import logger

CHECK_SECONDS = 0.5
TERMINATE_AFTER = 8.0
"""Seconds without proof after which local jobs are terminated: before others start them."""


class NodeLease:
    """A loop of its own calls `tick`, which never waits for the database."""

    def __init__(
        self,
        clock: Clock,
        terminate_jobs: Callable[[], None],
        on_regained: Callable[[], None],
    ) -> None:
        """`terminate_jobs` ends the local processes; `on_regained` is called when jobs may be
        claimed again."""
        self._clock, self._terminate_jobs = clock, terminate_jobs
        self._on_regained = on_regained
        self._proven_at = clock.monotonic()
        self._has_terminated = False

    def renew(self, since: float) -> None:
        """Record that the node was alive at `since`, when it started to prove it."""
        was_held = self.is_held()
        self._proven_at, self._has_terminated = since, False
        if not was_held:
            self._on_regained()

    def is_held(self) -> bool:
        """Whether other nodes still consider this one alive, so that it may claim jobs."""
        return self._clock.monotonic() - self._proven_at < TERMINATE_AFTER

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Terminate the local jobs once after the lease was lost."""
        if not self._has_terminated and not self.is_held():
            self._has_terminated = True
            logger("nodes").error("node lease lost; terminating local jobs")
            self._terminate_jobs()
        return CHECK_SECONDS
