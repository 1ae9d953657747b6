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
KILL_AFTER = 12.0
"""Seconds without proof after which slots kill their jobs, where this process is stopped."""


class NodeLease:
    """A loop of its own calls `tick`, which never waits for the database."""

    def __init__(
        self,
        clock: Clock,
        terminate_jobs: Callable[[], None],
        on_regained: Callable[[], None],
        set_deadline: Callable[[float], None],
    ) -> None:
        """`terminate_jobs` ends the local processes; `on_regained` is called when jobs may be
        claimed again; `set_deadline` when the slots kill their jobs by themselves."""
        self._clock, self._terminate_jobs = clock, terminate_jobs
        self._on_regained, self._set_deadline = on_regained, set_deadline
        self._proven_at = clock.monotonic()
        self._has_reported = False
        self._term = 0

    @property
    def term(self) -> int | None:
        """The number of the time without a loss in which the lease is held; None if it is not.

        What was claimed in an earlier term may have been taken over by another node since.
        """
        return self._term if self.is_held() else None

    def begin_term(self) -> None:
        """Record that other nodes may have taken over what this one has claimed so far."""
        self._term += 1

    def renew(self, since: float) -> None:
        """Record that the node was alive at `since`, when it started to prove it."""
        was_held = self.is_held()
        if not was_held:
            self.begin_term()
        self._set_deadline(since + KILL_AFTER)
        self._proven_at, self._has_reported = since, False
        if not was_held:
            self._on_regained()

    def is_held(self) -> bool:
        """Whether other nodes still consider this one alive, so that it may claim jobs."""
        return self._clock.monotonic() - self._proven_at < TERMINATE_AFTER

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Terminate the local jobs while the lease is not held."""
        if not self.is_held():
            if not self._has_reported:
                self._has_reported = True
                logger("nodes").error("node lease lost; terminating local jobs")
            # Again at each tick: a job may have got its process since the last.
            self._terminate_jobs()
        return CHECK_SECONDS
