"""Cancel requests for jobs of this node, which may come from another node."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from datetime import datetime

from ductile.clock import Clock
from ductile.model import Cancellation
from ductile.store.engines.api import StoredNotice
from ductile.store.jobs import cancel_requests

RETRY_SECONDS = 0.01
IDLE_SECONDS = 60.0
UNKNOWN_JOB_SECONDS = 1.0
"""How long a request waits for an unknown job, whose claim may just be committed."""


class CancelRequestHandler:
    """The notice bus calls `receive`; a loop, which `wake` wakes, calls `tick`."""

    def __init__(
        self,
        boot: str,
        clock: Clock,
        owned_jobs: Callable[[], Container[str]],
        cancel: Callable[[str, Cancellation], bool],
        wake: Callable[[], None],
    ) -> None:
        """`owned_jobs` returns the ids of this process; `cancel` ends a process if there is one."""
        self._boot, self._clock = boot, clock
        self._owned_jobs, self._cancel, self._wake = owned_jobs, cancel, wake
        self._guard = threading.Lock()
        self._pending: dict[str, tuple[Cancellation, float]] = {}

    def receive(self, notice: StoredNotice) -> None:
        """Queue a request if its job belongs to this boot."""
        request = cancel_requests.parse_cancel_request(notice)
        if request is None or request.owner != self._boot:
            return
        with self._guard:
            give_up = self._clock.monotonic() + UNKNOWN_JOB_SECONDS
            self._pending[request.job_id] = (request.why, give_up)
        self._wake()

    def tick(self, _now: datetime) -> float:
        """Cancel the requested jobs; one that is owned but has no process yet is retried."""
        with self._guard:
            pending = dict(self._pending)
        owned, at = self._owned_jobs(), self._clock.monotonic()
        # Outside the guard, so that a committing thread does not wait for a slot.
        done = {
            job_id
            for job_id, (why, give_up) in pending.items()
            if self._cancel(job_id, why) or (job_id not in owned and at >= give_up)
        }
        with self._guard:
            for job_id in done:
                self._pending.pop(job_id, None)
            return RETRY_SECONDS if self._pending else IDLE_SECONDS
