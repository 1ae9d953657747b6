"""Jobs that are claimed before a seat is free for them.

While jobs end faster than the disk can note it, a seat that is done goes on with one of these and
waits for no commit, and the ends gather: a commit costs nearly the same for one as for many.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque

from ductile.engine.dispatch.attempt import Attempt
from ductile.model import Cancellation
from ductile.runner.client import LINE

TURNS = 4
"""As many are wanted ahead as will end in so many turns like the last."""
LONGEST = 1.0
"""Seconds that a job may wait for a seat, before it goes back to where others can take it."""


class PrefetchQueue:
    """First in, first out. Only the dispatcher adds and takes; anybody may cancel."""

    def __init__(self, seats: int) -> None:
        self._seats = seats
        self._most = LINE * seats
        self._guard = threading.Lock()
        self._waiting: deque[Attempt] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Attempt:
        return self._waiting[0]

    def wanted(self, ran: int, waiting: int) -> int:
        """How many to claim in a turn in which so many have ended, while so many wait, here or in a
        slot.

        None for one end alone: its seat will not be free again before the next turn. None with one
        seat: jobs that run one after the other see each other's state.
        """
        if ran < 2 or self._seats < 2:
            return 0
        return max(0, min(TURNS * ran, self._most) - waiting)

    def add(self, attempt: Attempt) -> None:
        with self._guard:
            self._waiting.append(attempt)

    def put_back(self, attempt: Attempt) -> None:
        """Return a taken attempt to its place: the queue stays in the order of admission."""
        with self._guard:
            at = bisect_left(self._waiting, attempt.since, key=lambda one: one.since)
            self._waiting.insert(at, attempt)

    def take(self) -> Attempt:
        with self._guard:
            return self._waiting.popleft()

    def cancel(self, why: Cancellation, job_id: str | None) -> bool:
        """Mark what waits (only `job_id`, where given): it will not be run; whether one did."""
        with self._guard:
            found = [one for one in self._waiting if job_id in (None, one.job.id)]
            for attempt in found:
                attempt.cancelled = attempt.cancelled or why
        return bool(found)

    def withdraw(self, now: float, *, everything: bool) -> list[Attempt]:
        """Take out what will not be run from here: cancelled, or for too long without a seat."""
        with self._guard:
            leaving = [one for one in self._waiting if everything or is_over(one, now)]
            if leaving:
                self._waiting = deque(one for one in self._waiting if one not in leaving)
        return leaving


def is_over(attempt: Attempt, now: float) -> bool:
    """Whether an attempt that has not begun is not to begin any more."""
    return attempt.cancelled is not None or now - attempt.since > LONGEST
