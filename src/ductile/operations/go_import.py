"""`system import`: what is remembered in the Go program's ledger moves into ours."""

from __future__ import annotations

import tempfile
from datetime import datetime
from functools import partial
from pathlib import Path

from ductile.config import Settings
from ductile.engine.instance_lock import InstanceLock
from ductile.errors import Refused
from ductile.operations.restore import restore
from ductile.record import dataclass
from ductile.store import go_ledger
from ductile.store.backup import copy
from ductile.store.engines.open import open_ledger
from ductile.store.engines.sqlite import SqliteLedger
from ductile.store.go_ledger import Memory, Taken


@dataclass(frozen=True, slots=True)
class Imported:
    source: str
    states: list[str]
    kept: list[str]
    """Plugins that remember something here already: theirs stays as it is."""
    facts: int
    schedules: list[str]
    """Entries that go on from their last fire there; what fires once, and has, stays silent."""
    known: list[str]
    """Entries that have a past here already, which stays."""
    unfinished: int
    notes: list[str]
    moved_to: str | None
    """Where the other ledger is now, if it stood in the place of ours."""


def import_memory(
    settings: Settings, source: Path | None, *, now: datetime, dry: bool = False
) -> Imported:
    """Take over states, facts and the schedules' past; `Locked` while a gateway runs.

    Without a `source` the ledger is meant that stands where ours is to be: ours is made
    beside it, whole, before it takes its place.
    """
    own = settings.state.path
    in_place = own is not None and go_ledger.is_foreign(own)
    if source is None:
        if own is None or not in_place:
            raise Refused("no other program's ledger stands in the place of ours; name its file")
        source = own
    memory = go_ledger.read(source)
    moved = None
    if dry:
        entries = [entry.name for entry in memory.entries]
        taken = Taken(sorted(memory.states), [], len(memory.facts), entries, [])
    elif in_place:
        taken, moved = _in_place(settings, memory, now)
    else:
        taken = _into(settings, memory, now)
    return Imported(
        str(source),
        taken.states,
        taken.kept,
        taken.facts,
        taken.schedules,
        taken.known,
        memory.unfinished,
        memory.notes,
        moved,
    )


def _into(settings: Settings, memory: Memory, now: datetime) -> Taken:
    lock = InstanceLock(settings.state_dir)
    lock.acquire()
    try:
        ledger = open_ledger(path=settings.state.path, url=settings.state.url)
        try:
            return ledger.write(partial(go_ledger.take_over, memory=memory, now=now))
        finally:
            ledger.close()
    finally:
        lock.release()


def _in_place(settings: Settings, memory: Memory, now: datetime) -> tuple[Taken, str | None]:
    """Make our ledger elsewhere, and have it take the place of the other one."""
    with tempfile.TemporaryDirectory(prefix=".import-", dir=settings.state_dir) as folder:
        path = Path(folder) / "ledger.db"
        ledger = SqliteLedger(path)
        ledger.start()
        try:
            taken = ledger.write(partial(go_ledger.take_over, memory=memory, now=now))
        finally:
            ledger.close()
        copy.single_file(path)
        return taken, restore(settings, path, now=now).kept
