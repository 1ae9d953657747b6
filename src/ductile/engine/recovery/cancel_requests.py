"""Jobs that run here and that somebody wants ended, on whichever node he is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from datetime import datetime

from ductile.clock import Clock
from ductile.model import Cancellation
from ductile.store.engines.api import StoredNotice
from ductile.store.jobs import cancel_requests

LOOK = 0.01
IDLE = 60.0
LOOKED_FOR = 1.0
"""Seconds for which a job is looked for that we do not know of: its claim may be just committed."""


class CancelRequests:
    """`heed` is for the stream, `tick` for a loop that `wake` wakes."""

    def __init__(
        self,
        boot: str,
        clock: Clock,
        in_hand: Callable[[], Container[str]],
        cancel: Callable[[str, Cancellation], bool],
        wake: Callable[[], None],
    ) -> None:
        """`cancel` ends the process of a job, and says whether there is one."""
        self._boot, self._clock = boot, clock
        self._in_hand, self._cancel, self._wake = in_hand, cancel, wake
        self._guard = threading.Lock()
        self._wanted: dict[str, tuple[Cancellation, float]] = {}

    def heed(self, notice: StoredNotice) -> None:
        """Take a request for one of our jobs."""
        request = cancel_requests.parse_cancel_request(notice)
        if request is None or request.owner != self._boot:
            return
        with self._guard:
            give_up = self._clock.monotonic() + LOOKED_FOR
            self._wanted[request.job_id] = (request.why, give_up)
        self._wake()

    def tick(self, _now: datetime) -> float:
        """End what has a process; what is in hand and has none yet is looked at again."""
        with self._guard:
            wanted = dict(self._wanted)
        held, at = self._in_hand(), self._clock.monotonic()
        # Outside the guard: whoever commits must not wait for a slot.
        over = {
            job_id
            for job_id, (why, give_up) in wanted.items()
            if self._cancel(job_id, why) or (job_id not in held and at >= give_up)
        }
        with self._guard:
            for job_id in over:
                self._wanted.pop(job_id, None)
            return LOOK if self._wanted else IDLE
