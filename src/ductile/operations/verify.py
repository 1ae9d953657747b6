"""`system verify`: compares the ledger with its invariants, whether or not a gateway runs."""

from __future__ import annotations

from pathlib import Path

from ductile.engine.instance_lock import find_holder
from ductile.store.engines.api import Ledger
from ductile.store.verify import IsAlive, VerifyProgress, VerifyReport, applied_migrations, verify


def verify_ledger(
    ledger: Ledger,
    state_dir: Path,
    *,
    quick: bool = False,
    on_check: VerifyProgress = lambda _table, _rows: None,
) -> VerifyReport:
    """Raises `LedgerError` if this is not a ledger."""
    ledger.read(applied_migrations)
    return verify(ledger, quick=quick, is_alive=living_boots(ledger, state_dir), progress=on_check)


def living_boots(ledger: Ledger, state_dir: Path) -> IsAlive | None:
    """A predicate for boots that are alive; None if no gateway runs on this ledger."""
    boots = ledger.read(lambda tx: tx.all("open_boots"))
    if ledger.engine == "sqlite":
        # One gateway per file, whose process holds the lock. In a container its pid may equal that
        # of earlier ones, so the newest boot counts.
        holder = find_holder(state_dir)
        if holder is None:
            return None
        newest = next((id for id, owner in boots if holder.pid in (owner, None)), None)
        return None if newest is None else lambda boot: boot == newest
    held = {id for id, _ in boots if not ledger.boot_is_dead(id)}
    return held.__contains__ if held else None
