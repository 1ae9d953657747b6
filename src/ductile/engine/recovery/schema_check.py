"""Notices that a newer version has migrated the ledger beneath this running node."""

from __future__ import annotations

from datetime import datetime

from ductile.errors import LedgerError
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import compare_history
from ductile.store.verify import applied_migrations

CHECK_SECONDS = 15.0


class SchemaCheck:
    """A loop calls `tick`; while it fails, `/healthz` is 503 and names the reason.

    Running jobs continue: a migration must only add to the schema of the version before it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Raise `LedgerError` if the ledger has a migration that this version does not know."""
        applied = self._ledger.read(applied_migrations)
        foreign = compare_history(applied, self._ledger.engine).foreign
        if foreign:
            number, how = foreign[-1]
            raise LedgerError(
                f"migration {number:04} of the ledger {how}, and start this node again"
            )
        return CHECK_SECONDS
