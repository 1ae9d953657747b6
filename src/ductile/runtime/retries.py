"""Making ready what has waited long enough, and finding rows that others have written."""

from __future__ import annotations

from datetime import datetime

from ductile.runtime.bell import Bell
from ductile.store import claim
from ductile.store.ledger import Ledger

POLL_SECONDS = 1.0


class Retries:
    def __init__(self, ledger: Ledger, bell: Bell) -> None:
        self._ledger = ledger
        self._bell = bell

    def tick(self, now: datetime) -> float:
        """Promote what is due; the seconds until this is worth calling again."""
        due = self._ledger.read(lambda tx: claim.next_retry(tx, now))
        while due is not None and due <= now:
            promoted = self._ledger.write(lambda tx: claim.promote_due(tx, now))
            if promoted < claim.RETRIES_AT_ONCE:
                due = self._ledger.read(lambda tx: claim.next_retry(tx, now))
                break
        if self._ledger.read(claim.has_ready):
            self._bell.ring_all()
        wait = (due - now).total_seconds() if due is not None else POLL_SECONDS
        return min(max(wait, 0.0), POLL_SECONDS)
