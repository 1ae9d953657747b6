"""Promotes due retries to the ready queue, and finds rows that other processes have written."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile.engine.dispatch.work_signal import WorkSignal
from ductile.engine.scheduling.waiting_runs import WaitingRuns
from ductile.log import logger
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import claim, retries

POLL_SECONDS = 1.0


class RetryPromoter:
    """A loop calls `tick`."""

    def __init__(
        self, ledger: Ledger, work_signal: WorkSignal, waiting_runs: WaitingRuns | None = None
    ) -> None:
        self._ledger, self._waiting_runs = ledger, waiting_runs
        self._work_signal = work_signal
        self._log = logger("retries")
        self._normalized_at: datetime | None = None

    def tick(self, now: datetime) -> float:
        """Promote the due retries; returns the seconds until the next call."""
        # One transaction: each node does this every second.
        due, is_ready, is_foreign = self._ledger.read(lambda tx: self._look(tx, now))
        if is_foreign:
            self._normalize_due_times()
            due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
        is_left = False
        if due is not None and due <= now and self._waiting_runs is not None:
            is_left = self._waiting_runs.take_due(now)
        while due is not None and due <= now:
            promoted = self._ledger.write(lambda tx: retries.promote_due(tx, now))
            if promoted < retries.BATCH:
                due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
                break
        if due is not None and due <= now:
            # A row that is due but was not promoted has a time that a script has just written.
            self._normalized_at = None
        if is_ready or is_foreign:
            self._work_signal.notify_all()
        if due is None or (is_left and due <= now):
            return POLL_SECONDS
        wait = (due - now).total_seconds()
        return min(max(wait, 0.0), POLL_SECONDS)

    def _look(self, tx: Tx, now: datetime) -> tuple[datetime | None, bool, bool]:
        """When the next retry is due, whether jobs are ready, and whether times are foreign.

        Finding those reads all waiting rows, so it is done once per second only.
        """
        last, is_foreign = self._normalized_at, False
        if last is None or abs(now - last) >= timedelta(seconds=POLL_SECONDS):
            self._normalized_at = now
            is_foreign = retries.has_foreign_time(tx)
        return retries.next_retry_at(tx, now), claim.has_ready(tx), is_foreign

    def _normalize_due_times(self) -> None:
        """Rewrite `next_retry_at` values that scripts have written in another format."""
        while True:
            normalized = self._ledger.write(retries.normalize_times)
            for job_id, due in normalized.items():
                if due is None:
                    self._log.warning("next_retry_at is not a time; due now", job_id=job_id)
            if len(normalized) < retries.BATCH:
                return
