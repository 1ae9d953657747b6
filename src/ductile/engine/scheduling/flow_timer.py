"""Ends pauses at their time, and wakes the dispatcher when a held job may start."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta

from ductile.core.flow.pauses import Pause
from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.log import logger
from ductile.store.engines.api import Ledger, Tx
from ductile.store.flow import gate, pauses, set_aside

LONGEST_SLEEP = 60.0
"""Seconds; the end of a pause that another node has stored is noticed after this time at most."""


CLEAN_INTERVAL = timedelta(minutes=10)


class FlowTimer:
    """A loop calls `tick`: at the next of these times, and when one of them has changed."""

    def __init__(self, ledger: Ledger, work_signal: WorkSignal) -> None:
        self._ledger, self._work_signal = ledger, work_signal
        self._log = logger("flow")
        self._lock = threading.Lock()
        self._opens_at: datetime | None = None
        self._cleaned_at: datetime | None = None

    def add_opening(self, moment: datetime) -> None:
        """Wake the dispatcher at this time. For any thread."""
        with self._lock:
            if self._opens_at is None or moment < self._opens_at:
                self._opens_at = moment

    def tick(self, now: datetime) -> float:
        """Do what is due; returns the seconds until the next call."""
        with self._lock:
            opens_at = self._opens_at
            is_open = opens_at is not None and opens_at <= now
            if is_open:
                self._opens_at = opens_at = None
        if is_open:
            # A claim that finds a further closed limit key adds its time again.
            self._work_signal.notify_all()
        end = self._ledger.read(_next_end)
        if end is not None and end <= now:
            for pause in self._ledger.write(lambda tx: _end_due(tx, now)):
                self._log.info("pause ended", kind=pause.kind.value, name=pause.name)
            end = self._ledger.read(_next_end)
        self._clean(now)
        times = [moment for moment in (opens_at, end) if moment is not None]
        if not times:
            return LONGEST_SLEEP
        return min(max((min(times) - now).total_seconds(), 0.0), LONGEST_SLEEP)

    def _clean(self, now: datetime) -> None:
        """Delete rates that are the same as none, and find jobs again that nothing leads to."""
        if self._cleaned_at is None or now - self._cleaned_at >= CLEAN_INTERVAL:
            self._cleaned_at = now
            if self._ledger.read(lambda tx: gate.has_past_rates(tx, now)):
                self._ledger.write(lambda tx: gate.delete_past(tx, now))
            while self._ledger.read(set_aside.has_lost):
                count = self._ledger.write(set_aside.return_lost)
                self._log.warning("returned held jobs to the queue", count=count)
                if count == 0:
                    break


def _next_end(tx: Tx) -> datetime | None:
    times = [pauses.next_end(tx), gate.next_open_key(tx)]
    return min((moment for moment in times if moment is not None), default=None)


def _end_due(tx: Tx, now: datetime) -> list[Pause]:
    gate.delete_past(tx, now)
    tx.effects.ready_any = True
    return pauses.end_due_pauses(tx, now)
