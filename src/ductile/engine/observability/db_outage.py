"""A ledger that is away for a while: who keeps asking for it tells so once, not every second."""

from __future__ import annotations

from ductile.errors import LedgerError
from ductile.log import Logger


class Outage:
    """One asker's; for one thread."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._reason: str | None = None

    def met(self, error: LedgerError) -> None:
        """Tell of it, unless that is what was told last."""
        if error.message != self._reason:
            self._reason = error.message
            self._log.error("the ledger is not available", error=error.message)

    def over(self) -> None:
        if self._reason is not None:
            self._reason = None
            self._log.info("the ledger is available again")
