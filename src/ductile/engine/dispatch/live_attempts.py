"""The attempts of the gateway that have not ended, and the workers that run them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from ductile.clock import Clock
from ductile.core.jobs.live_log import readable_beginning
from ductile.engine.dispatch.attempt import CANCELLABLE, HAS_PROCESS, Attempt, AttemptState
from ductile.model import Cancellation
from ductile.runner.client import SlotClient


class RunningLog(NamedTuple):
    """What a running attempt has written to stderr so far, without secrets."""

    attempt: int
    text: str
    elapsed: float
    """Seconds since its claim."""


class Worker:
    """A slot, with the attempt that has it and those that its slot buffers."""

    __slots__ = ("attempt", "buffered", "cold", "is_leaving", "slot", "warm_key")

    def __init__(self, slot: SlotClient) -> None:
        self.cold = slot
        """Its own slot."""
        self.slot = slot
        """The slot in use: its own, or a warm one until that runs nothing more."""
        self.warm_key: str | None = None
        """What the warm slot in use can start; None while its own is in use."""
        self.is_leaving = False
        """Whether it is removed when it runs nothing more."""
        self.attempt: Attempt | None = None
        self.buffered: deque[Attempt] = deque()

    @property
    def is_running(self) -> bool:
        return self.attempt is not None and self.attempt.state is AttemptState.RUNNING

    def leave_warm_slot(self) -> SlotClient | None:
        """Use its own slot again; the warm one, if it used one."""
        if self.warm_key is None:
            return None
        left, self.slot, self.warm_key = self.slot, self.cold, None
        return left


class LiveAttempts:
    """All attempts of the gateway that are not DONE. Its methods are for any thread."""

    def __init__(self, clock: Clock, workers: Iterable[Worker]) -> None:
        self._clock = clock
        self.workers = list(workers)
        """Replaced, never changed: other threads iterate over it."""
        self.attempts: set[Attempt] = set()
        """Changed by the dispatcher's thread alone."""
        self.lock = threading.Lock()
        """Held while an attempt gets or loses its process, or stops being CANCELLABLE."""

    @property
    def busy(self) -> int:
        """How many processes run now."""
        attempts = [worker.attempt for worker in self.workers]
        return sum(one is not None and one.state in HAS_PROCESS for one in attempts)

    def running_log(self, job_id: str) -> RunningLog | None:
        """The log of the job's process, if it runs here."""
        with self.lock:
            found = [
                (worker.attempt, worker.slot.live_stderr)
                for worker in self.workers
                if worker.is_running and worker.attempt and worker.attempt.job.id == job_id
            ]
        for attempt, stderr in found:
            text = readable_beginning(stderr, attempt.rules.redactor)
            elapsed = self._clock.monotonic() - attempt.claimed_at
            return RunningLog(attempt.job.attempt, text, elapsed)
        return None

    def running_ids(self) -> list[str]:
        """The jobs whose processes run here."""
        with self.lock:
            return [w.attempt.job.id for w in self.workers if w.is_running and w.attempt]

    def job_ids(self) -> frozenset[str]:
        """The jobs of all attempts that are not DONE."""
        return frozenset(attempt.job.id for attempt in list(self.attempts))

    def cancel(self, why: Cancellation, grace: float, job_id: str | None) -> bool:
        """Cancel the attempt of this job, or all; whether one was found that had not ended.

        A process gets SIGTERM and `grace` seconds.
        """
        with self.lock:
            found = {
                attempt
                for attempt in list(self.attempts)
                if job_id in (None, attempt.job.id) and attempt.state in CANCELLABLE
            }
            for attempt in found:
                attempt.cancelled = attempt.cancelled or why
            for worker in self.workers:
                running = worker.attempt
                if running is not None and running in found and running.state in HAS_PROCESS:
                    worker.slot.cancel(grace)
        return bool(found)
