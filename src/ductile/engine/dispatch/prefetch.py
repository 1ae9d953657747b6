"""Prefetching: jobs that are claimed before a worker is idle.

While jobs end faster than commits are durable, a worker whose job has ended continues with a
prefetched one instead of waiting for the commit that settles it, and settlements gather: a commit
costs nearly the same for one settlement as for many. `docs/adr/0013-prefetching.md` has the
reasons and the limits.

Everything that is specific to prefetching follows from `PrefetchQueue.demand`: where it returns 0,
each claim is for an idle worker, and the queue only passes it on.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from ductile.engine.dispatch.attempt import Attempt
from ductile.runner.client import BUFFER_LIMIT

ROUNDS_AHEAD = 4
"""As many jobs are prefetched as this number of times have ended recently."""
RECENT = 0.01
"""Seconds in which the ends of jobs count as recent. Where jobs end one by one, each would be
settled by a commit of its own, for which its worker would wait."""
SHORTEST_NAP, LONGEST_NAP = 0.002, 0.008
"""Limits of the time between two rounds while every slot has a buffered job, in seconds: handling
many ended jobs together costs little more than handling one."""
LONGEST_WAIT = 1.0
"""Seconds that a job may wait for a worker before it goes back to the queue, uncounted."""
SHORT_JOB = 0.1
"""Seconds since its claim in which a running job is expected to end soon. Nothing is buffered
behind one that runs longer: it would start later than younger jobs."""
SHARED_LIMIT = 3
"""Jobs that are prefetched per worker where another node may have an idle worker for them."""
LONGEST_WAIT_SHARED = 0.25
"""As `LONGEST_WAIT`, where another node may have an idle worker."""


class RecentEnds:
    """How many processes have ended within `RECENT`."""

    def __init__(self) -> None:
        self._rounds: deque[tuple[float, int]] = deque()
        self._count = 0

    def add(self, now: float, ended: int) -> int:
        """Add the ends of a round; the number of recent ends with them."""
        self._rounds.append((now, ended))
        self._count += ended
        while self._rounds[0][0] < now - RECENT:
            self._count -= self._rounds.popleft()[1]
        return self._count

    def seconds_until(self, ends: float) -> float:
        """How long to nap for this number of further ends at the recent rate."""
        return min(max(SHORTEST_NAP, ends * RECENT / max(1, self._count)), LONGEST_NAP)


class PrefetchQueue:
    """PREFETCHED attempts, first in, first out. For the dispatcher's thread."""

    def __init__(self, workers: int, has_other_nodes: Callable[[], bool]) -> None:
        """`has_other_nodes`: whether the jobs are shared; then fewer are prefetched."""
        self._waiting: deque[Attempt] = deque()
        self._has_other_nodes = has_other_nodes
        self.resize(workers)

    def resize(self, workers: int) -> None:
        """Prefetch for this number of workers."""
        self._workers = workers

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> Attempt:
        return self._waiting[0]

    def demand(self, finished: int, waiting: int) -> int:
        """How many jobs to prefetch, while `finished` processes have ended recently and `waiting`
        attempts wait here or in a slot's buffer.

        None for one end alone: its worker will not be idle again before the next round. None with
        one worker: jobs that run one after the other see each other's state.
        """
        if finished < 2 or self._workers < 2:
            return 0
        limit = self._workers * (SHARED_LIMIT if self._has_other_nodes() else BUFFER_LIMIT)
        return max(0, min(ROUNDS_AHEAD * finished, limit) - waiting)

    def add(self, attempt: Attempt) -> None:
        self._waiting.append(attempt)

    def put_back(self, attempt: Attempt) -> None:
        """Return a taken attempt to its place: the queue stays in the order of the claims."""
        at = bisect_left(self._waiting, attempt.claimed_at, key=lambda one: one.claimed_at)
        self._waiting.insert(at, attempt)

    def take(self) -> Attempt:
        return self._waiting.popleft()

    def withdraw(self, now: float, *, everything: bool) -> list[Attempt]:
        """Remove and return the attempts that are not to start any more, or all of them."""
        leaving = [one for one in self._waiting if everything or self.is_over(one, now)]
        if leaving:
            self._waiting = deque(one for one in self._waiting if one not in leaving)
        return leaving

    def may_follow(self, running: Attempt, now: float) -> bool:
        """Whether an attempt may be buffered behind a running one."""
        return now - running.claimed_at <= SHORT_JOB

    def is_over(self, attempt: Attempt, now: float) -> bool:
        """Whether an attempt that has not started is not to start any more."""
        longest_wait = LONGEST_WAIT_SHARED if self._has_other_nodes() else LONGEST_WAIT
        return attempt.cancelled is not None or now - attempt.claimed_at > longest_wait
