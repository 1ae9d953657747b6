"""Boots: one row per start of a gateway, and the boots that own running jobs."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import to_text
from ductile.store.engines.api import Tx


def begin_boot(tx: Tx, *, id: str, pid: int, version: str, now: datetime) -> None:
    """Record a start, or reopen a boot that other nodes have taken for dead."""
    if not tx.run("resume_boot", id=id):
        tx.run("insert_boot", id=id, pid=pid, version=version, now=to_text(now))


def end_boot(tx: Tx, id: str, now: datetime) -> None:
    tx.run("end_boot", id=id, now=to_text(now))


def is_open(tx: Tx, id: str) -> bool:
    """Whether the boot exists and its end is not recorded."""
    return tx.one("open_boot", id=id) is not None


def list_other_open(tx: Tx, id: str) -> list[str]:
    """The boots except this one whose end is not recorded."""
    return [row[0] for row in tx.all("other_open_boots", id=id)]


def list_job_owners(tx: Tx) -> list[str | None]:
    """The boots that own running jobs; None for a row without an owner."""
    return [row[0] for row in tx.all("running_owners")]
