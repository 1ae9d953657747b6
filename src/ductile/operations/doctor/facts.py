"""What the doctor reports besides its findings: versions, places and sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ductile
from ductile.config import find
from ductile.errors import DuctileError
from ductile.operations.backup import last_backup, room_at
from ductile.operations.doctor.context import DoctorContext, exists
from ductile.operations.doctor.ledger import wal_size


def collect_facts(context: DoctorContext) -> dict[str, Any]:
    """Return the version and, if the configuration names a ledger, its facts."""
    facts: dict[str, Any] = {"version": ductile.__version__}
    state, directory = context.state, context.state_dir
    if state is None or directory is None:
        return facts
    ledger_bytes = None
    if state.path is not None and exists(state.path):
        ledger_bytes = state.path.stat().st_size
    return facts | {
        "config": str(find(context.config, context.environ).parent),
        "state_dir": str(directory),
        "engine": "sqlite" if state.url is None else "postgres",
        "pid": context.pid,
        "uptime_seconds": _uptime(context),
        "ledger_bytes": ledger_bytes,
        "wal_bytes": wal_size(context),
        "free_bytes": _free_bytes(directory),
        "last_backup": last_backup(directory),
    }


def _free_bytes(directory: Path) -> int | None:
    """Return the free bytes on its disk, or None if this user may not see the directory."""
    try:
        return room_at(directory)
    except OSError:
        return None


def _uptime(context: DoctorContext) -> Any:
    """Return the gateway's uptime, or None if it does not respond."""
    if context.ask is None:
        return None
    try:
        return context.health()["uptime_seconds"]
    except DuctileError:
        return None
