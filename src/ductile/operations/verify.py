"""`system selfcheck`: the ledger held against its promises, whether or not a gateway runs."""

from __future__ import annotations

from pathlib import Path

from ductile.engine.instance_lock import running_pid
from ductile.store.engines.api import Ledger
from ductile.store.verify import Alive, Report, Tell, applied_migrations, verify


def selfcheck(
    ledger: Ledger,
    state_dir: Path,
    *,
    quick: bool = False,
    tell: Tell = lambda _table, _rows: None,
) -> Report:
    """`LedgerError` where this is no ledger at all."""
    ledger.read(applied_migrations)
    return verify(ledger, quick=quick, alive=living(ledger, state_dir), tell=tell)


def living(ledger: Ledger, state_dir: Path) -> Alive | None:
    """Which boots are alive; None where no gateway runs on this ledger."""
    boots = ledger.read(lambda tx: tx.all("unended_boots"))
    if ledger.engine == "sqlite":
        # One gateway a file, whose process holds the lock. In a container its id is that of
        # those before it, too.
        pid = running_pid(state_dir)
        newest = next((id for id, owner in boots if owner == pid), None)
        return None if newest is None else lambda boot: boot == newest
    held = {id for id, _ in boots if not ledger.boot_is_dead(id)}
    return held.__contains__ if held else None
