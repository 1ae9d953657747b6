"""What an operator does to a schedule entry: pause and resume it."""

from __future__ import annotations

from datetime import datetime

from ductile.core.schedules.decide import Schedule
from ductile.store import schedules
from ductile.store.engines.api import Tx
from ductile.store.flow.pauses import store_entry_resume


def set_paused(tx: Tx, schedule: Schedule, now: datetime, *, paused: bool) -> None:
    """Pause or resume an entry, also one that no gateway has fired yet."""
    known = schedules.load_anchors(tx, schedule, now)
    if known is None:
        schedules.ensure_entry(tx, schedule, now, now)
    elif known.paused and not paused:
        store_entry_resume(tx, schedule.plugin, schedule.id, now)
    schedules.set_paused(tx, schedule.plugin, schedule.id, paused=paused)
