"""Starts of gateways, and which of them still own running jobs."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.store.engines.api import Tx


def begin(tx: Tx, *, id: str, pid: int, version: str, now: datetime) -> None:
    """Also for one that others have taken for dead: it has not ended after all."""
    if not tx.run("resume_boot", id=id):
        tx.run("insert_boot", id=id, pid=pid, version=version, now=to_text(now))


def end(tx: Tx, id: str, now: datetime) -> None:
    tx.run("end_boot", id=id, now=to_text(now))


def is_under_way(tx: Tx, id: str) -> bool:
    """Whether nobody has recorded its end."""
    return tx.one("boot_under_way", id=id) is not None


def others(tx: Tx, id: str) -> list[str]:
    """Boots whose end nobody has recorded, but this one."""
    return [row[0] for row in tx.all("other_boots", id=id)]


def owners(tx: Tx) -> list[str | None]:
    """The boots that running jobs name; None for a row that names none."""
    return [row[0] for row in tx.all("running_owners")]
