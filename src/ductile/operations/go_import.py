"""`system import`: takes states, facts, schedules and jobs over from the Go program's ledger."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path

from ductile._fast_dataclass import dataclass
from ductile.config import Settings
from ductile.engine.instance_lock import InstanceLock
from ductile.errors import Refused
from ductile.operations.restore import restore
from ductile.store import go_ledger
from ductile.store.backup import copy
from ductile.store.engines.api import Tx
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.go_ledger import GoImportResult, GoLedgerContents


@dataclass(frozen=True, slots=True)
class Imported:
    source: str
    states: list[str]
    kept: list[str]
    """Plugins that have state here already, which is not changed."""
    facts: int
    schedules: list[str]
    """Entries that continue after their last fire there; one-time entries do not fire again."""
    known: list[str]
    """Entries that have a history here already, which is not changed."""
    jobs: int
    """Queued jobs that run here now."""
    unfinished: int
    """Jobs that follow from others (routes, pipelines) and had not ended, which stay behind."""
    notes: list[str]
    moved_to: str | None
    """Where the Go program's ledger is now, if it was at the path of ours."""


Watch = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and the total; 0 if it is not known."""


def _watch_nothing(_what: str, _done: int, _total: int) -> None: ...


def import_memory(
    settings: Settings,
    source: Path | None,
    *,
    now: datetime,
    dry: bool = False,
    watch: Watch = _watch_nothing,
) -> Imported:
    """Import states, facts, schedule history and queued jobs; `Locked` while a gateway runs.

    Without a `source`, the file at the configured path is imported: a new ledger is completed in
    the same directory before it replaces that file.
    """
    own = settings.state.path
    in_place = own is not None and go_ledger.is_go_ledger(own)
    if source is None:
        if own is None or not in_place:
            raise Refused("there is no ledger of the Go program at state.path; name its file")
        source = own
    watch("reading", 0, 0)
    memory = go_ledger.read_go_ledger(source)
    moved = None
    if dry:
        entries = [entry.name for entry in memory.entries]
        taken = GoImportResult(
            sorted(memory.states), [], len(memory.facts), entries, [], len(memory.jobs)
        )
    elif in_place:
        taken, moved = _in_place(settings, memory, now, watch)
    else:
        taken = _into(settings, memory, now, watch)
    return Imported(
        str(source),
        taken.states,
        taken.kept,
        taken.facts,
        taken.schedules,
        taken.known,
        taken.jobs,
        memory.unfinished,
        memory.notes,
        moved,
    )


def _into(
    settings: Settings, memory: GoLedgerContents, now: datetime, watch: Watch
) -> GoImportResult:
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        ledger = open_ledger(path=settings.state.path, url=settings.state.url)
        try:
            return ledger.write(_import(memory, now, watch))
        finally:
            ledger.close()
    finally:
        lock.release()


def _import(
    memory: GoLedgerContents, now: datetime, watch: Watch
) -> Callable[[Tx], GoImportResult]:
    """The transaction; an interrupted import is committed as a whole or not at all."""
    progress = partial(watch, "importing")
    return lambda tx: go_ledger.import_contents(tx, memory, now, progress)


def _in_place(
    settings: Settings, memory: GoLedgerContents, now: datetime, watch: Watch
) -> tuple[GoImportResult, str | None]:
    """Create our ledger in a temporary directory, then let it replace the other one."""
    with tempfile.TemporaryDirectory(prefix=".import-", dir=settings.state_dir) as folder:
        path = Path(folder) / "ledger.db"
        ledger = SqliteLedger(path)
        ledger.start()
        try:
            taken = ledger.write(_import(memory, now, watch))
        finally:
            ledger.close()
        copy.fold_wal(path)
        return taken, restore(settings, path, now=now, watch=partial(watch, "copying")).kept
