"""Making ready what has waited long enough, and finding rows that others have written."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile.engine.dispatch.dispatcher import WorkSignal
from ductile.log import logger
from ductile.store.engines.api import Ledger
from ductile.store.jobs import claim, retries

POLL_SECONDS = 1.0


class Retries:
    def __init__(self, ledger: Ledger, work_signal: WorkSignal) -> None:
        self._ledger = ledger
        self._work_signal = work_signal
        self._log = logger("retries")
        self._looked: datetime | None = None

    def tick(self, now: datetime) -> float:
        """Promote what is due; the seconds until this is worth calling again."""
        self._mend(now)
        due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
        while due is not None and due <= now:
            promoted = self._ledger.write(lambda tx: retries.promote_due(tx, now))
            if promoted < retries.BATCH:
                due = self._ledger.read(lambda tx: retries.next_retry_at(tx, now))
                break
        if due is not None and due <= now:
            # What is due and was left is not in our form: a script has just written it.
            self._looked = None
        if self._ledger.read(claim.has_ready):
            self._work_signal.notify_all()
        wait = (due - now).total_seconds() if due is not None else POLL_SECONDS
        return min(max(wait, 0.0), POLL_SECONDS)

    def _mend(self, now: datetime) -> None:
        """Bring the times that scripts wrote in forms of their own into ours.

        That takes a look at all that waits: once a second is enough, however often we are woken.
        """
        if self._looked is not None and abs(now - self._looked) < timedelta(seconds=POLL_SECONDS):
            return
        self._looked = now
        if not self._ledger.read(retries.has_foreign_time):
            return
        while True:
            mended = self._ledger.write(retries.normalize_times)
            for job_id, due in mended.items():
                if due is None:
                    why = "its next_retry_at cannot be read"
                    self._log.warning("a job no longer waits", job_id=job_id, reason=why)
            if len(mended) < retries.BATCH:
                return
