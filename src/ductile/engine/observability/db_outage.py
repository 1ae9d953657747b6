"""Logs that the ledger is unavailable: once per outage, not with every retry."""

from __future__ import annotations

from ductile.errors import LedgerError
from ductile.log import Logger


class OutageLog:
    """For one caller on one thread."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._reason: str | None = None

    def report(self, error: LedgerError) -> None:
        """Log the error, unless it is the one that was logged last."""
        if error.message != self._reason:
            self._reason = error.message
            self._log.error("ledger unavailable", error=error.message)

    def report_end(self) -> None:
        """Log that the ledger is available, if an outage was logged."""
        if self._reason is not None:
            self._reason = None
            self._log.info("ledger available again")
