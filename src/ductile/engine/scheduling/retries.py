"""Promotes due retries to the ready queue, and finds rows that other processes have written."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile.engine.dispatch.dispatcher import WorkSignal
from ductile.log import logger
from ductile.store.engines.api import Ledger
from ductile.store.jobs import claim, retries

POLL_SECONDS = 1.0


class RetryPromoter:
    """A loop calls `tick`."""

    def __init__(self, ledger: Ledger, work_signal: WorkSignal) -> None:
        self._ledger = ledger
        self._work_signal = work_signal
        self._log = logger("retries")
        self._normalized_at: datetime | None = None

    def tick(self, now: datetime) -> float:
        """Promote the due retries; returns the seconds until the next call."""
        self._normalize_due_times(now)
        due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
        while due is not None and due <= now:
            promoted = self._ledger.write(lambda tx: retries.promote_due(tx, now))
            if promoted < retries.BATCH:
                due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
                break
        if due is not None and due <= now:
            # A row that is due but was not promoted has a time that a script has just written.
            self._normalized_at = None
        if self._ledger.read(claim.has_ready):
            self._work_signal.notify_all()
        wait = (due - now).total_seconds() if due is not None else POLL_SECONDS
        return min(max(wait, 0.0), POLL_SECONDS)

    def _normalize_due_times(self, now: datetime) -> None:
        """Rewrite `next_retry_at` values that scripts have written in another format.

        Finding them reads all waiting rows, so it is done once per second only.
        """
        last = self._normalized_at
        if last is not None and abs(now - last) < timedelta(seconds=POLL_SECONDS):
            return
        self._normalized_at = now
        if not self._ledger.read(retries.has_foreign_time):
            return
        while True:
            normalized = self._ledger.write(retries.normalize_times)
            for job_id, due in normalized.items():
                if due is None:
                    self._log.warning("next_retry_at is not a time; due now", job_id=job_id)
            if len(normalized) < retries.BATCH:
                return
