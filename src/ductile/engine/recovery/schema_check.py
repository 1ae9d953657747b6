"""Migrations while this node runs: those of newer versions, and its own that had to wait."""

from __future__ import annotations

from datetime import datetime

from ductile.errors import LedgerError
from ductile.log import logger
from ductile.store.engines.api import Ledger
from ductile.store.engines.migrate import CONTRACT, compare_history, load_migrations
from ductile.store.verify import applied_migrations

CHECK_SECONDS = 15.0


class SchemaCheck:
    """A loop calls `tick`; while it fails, `/healthz` is 503 and names the reason."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._waiting: str | None = None
        """The migration of which the log says that it waits."""
        self._newest = 0
        """The newest migration of a newer version that was logged."""

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Raise `LedgerError` if this version cannot live with a migration that it does not know.

        A migration of a newer version that only adds to the schema changes nothing for this one.
        """
        applied = self._ledger.read(applied_migrations)
        foreign = compare_history(applied, self._ledger.engine).foreign
        rows = self._ledger.read(lambda tx: tx.all("migration_names")) if foreign else []
        names: dict[int, str] = dict(rows)
        for number, how in reversed(foreign):
            is_known = number in {one.number for one in load_migrations(self._ledger.engine)}
            if is_known or names[number].startswith(CONTRACT):
                raise LedgerError(
                    f"migration {number:04} of the ledger {how}, and start this node again"
                )
        if foreign and foreign[-1][0] != self._newest:
            self._newest = foreign[-1][0]
            logger("schema").info("a newer version has extended the schema", number=self._newest)
        self._apply_waiting()
        return CHECK_SECONDS

    def _apply_waiting(self) -> None:
        if self._ledger.waiting_migration is not None:
            self._ledger.migrate()
        before, self._waiting = self._waiting, self._ledger.waiting_migration
        if self._waiting not in (None, before):
            logger("schema").warning(str(self._waiting))
        elif before is not None and self._waiting is None:
            logger("schema").info("applied the migration that waited for older nodes")
