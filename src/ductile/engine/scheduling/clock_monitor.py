"""Notices that the clock was set, and moves due times with a clock that was set back."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from ductile.clock import Clock, JumpDetector, to_text
from ductile.log import logger
from ductile.model import Notice
from ductile.store import boots, notices
from ductile.store.engines.api import Ledger
from ductile.store.outbox.due_times import DELAYED, Delayed, move_due_times

INTERVAL = 1.0
SMALLEST_AT_START = timedelta(seconds=5)
"""Less is the inaccuracy of a clock that is set at the start of the machine."""


class ClockMonitor:
    """A loop calls `tick`.

    A retry, a delivery or a one-time reminder waits for a delay, which is stored as a time. If the
    clock is set back by an hour, all of them would wait for an hour more. Schedules and recurring
    reminders follow the calendar; their own loops compute them again.
    """

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        boot: str,
        moved: Callable[[], None],
        last_time: datetime | None = None,
    ) -> None:
        """`moved` is called when rows may be due that were not before; `last_time` is the newest
        time that an earlier boot has written."""
        self._ledger, self._boot, self._moved = ledger, boot, moved
        self._last_time = last_time
        self._jumps = JumpDetector(clock)
        self._pending: deque[tuple[Delayed, int | str, timedelta]] = deque()
        """What is to be moved, from which row on, and by how much."""
        self._log = logger("clock")

    def tick(self, now: datetime) -> float:
        """Move the due times if the clock was set back; returns the seconds until the next call."""
        self._compare_with_last_boot(now)
        jump = self._jumps.detect(now)
        if jump:
            direction = "forward" if jump > 0 else "back"
            self._log.warning(f"the clock was set {direction}", seconds=round(abs(jump), 1))
        if jump < 0:
            earlier = timedelta(seconds=-jump)
            self._pending += [(kind, kind.first, earlier) for kind in DELAYED]
        if self._pending and self._has_other_nodes():
            # Their due times came from other clocks.
            self._pending.clear()
        while self._pending:
            self._move_batch(now)
        return INTERVAL

    def _compare_with_last_boot(self, now: datetime) -> None:
        """Move the due times by what the clock was set back at least while no gateway ran."""
        last, self._last_time = self._last_time, None
        if last is None or last - now < SMALLEST_AT_START:
            return
        seconds = round((last - now).total_seconds(), 1)
        self._log.warning(
            "the clock was set back while no gateway ran", seconds=seconds, newest=to_text(last)
        )
        self._pending += [(kind, kind.first, last - now) for kind in DELAYED]
        # From now on this is the newest time: the next start does not move them again.
        notice = Notice("flow", "flow.clock_set_back", {"seconds": seconds})
        self._ledger.write(lambda tx: notices.post(tx, notice, now))

    def _has_other_nodes(self) -> bool:
        others = self._ledger.read(lambda tx: boots.list_other_open(tx, self._boot))
        return not all(map(self._ledger.boot_is_dead, others))

    def _move_batch(self, now: datetime) -> None:
        kind, after, earlier = self._pending[0]
        work = partial(move_due_times, kind=kind, after=after, earlier=earlier, now=now)
        count, behind = self._ledger.write(work)
        # Only after the commit: a batch that the ledger refused is repeated.
        self._pending.popleft()
        if behind is not None:
            self._pending.appendleft((kind, behind, earlier))
        if count:
            self._log.warning("moved due times with the clock", kind=kind.noun, count=count)
            self._moved()
