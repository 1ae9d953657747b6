"""Ends pauses at their time."""

from __future__ import annotations

from datetime import datetime

from ductile.log import logger
from ductile.store.engines.api import Ledger
from ductile.store.flow import pauses

LONGEST_SLEEP = 60.0
"""Seconds; the end of a pause that another node has stored is noticed after this time at most."""


class PauseExpirer:
    """A loop calls `tick`, at the end of the next pause and when a pause has changed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._log = logger("pauses")

    def tick(self, now: datetime) -> float:
        """End the due pauses; returns the seconds until the next call."""
        end = self._ledger.read(pauses.next_end)
        if end is not None and end <= now:
            for pause in self._ledger.write(lambda tx: pauses.end_due_pauses(tx, now)):
                self._log.info("pause ended", kind=pause.kind.value, name=pause.name)
            end = self._ledger.read(pauses.next_end)
        if end is None:
            return LONGEST_SLEEP
        return min(max((end - now).total_seconds(), 0.0), LONGEST_SLEEP)
