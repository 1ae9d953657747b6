"""The boot of this process in the ledger, and the last one of its state directory in a file.

The holder of the instance lock knows that the last boot of the directory has ended.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

import ductile
from ductile.errors import LedgerError
from ductile.files import open_new
from ductile.log import Logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger, Tx

MAX_LENGTH = 100


def begin_boot(ledger: Ledger, boot: str, now: datetime) -> None:
    pid, version = os.getpid(), ductile.__version__
    ledger.write(lambda tx: boots.begin_boot(tx, id=boot, pid=pid, version=version, now=now))


def end_boot(ledger: Ledger, boot: str, now: datetime, log: Logger) -> None:
    """A boot whose end cannot be recorded counts as crashed: the next start recovers it."""

    def work(tx: Tx) -> None:
        boots.end_boot(tx, boot, now)
        nodes.stop(tx, boot)

    try:
        ledger.write(work)
    except LedgerError as error:
        log.error("the end of this boot is not recorded", error=error.message)


def read_last_boot(state_dir: Path) -> str | None:
    """The recorded boot; None if there is none, or a power loss destroyed the record."""
    try:
        with _path(state_dir).open(encoding="ascii") as file:
            return file.read(MAX_LENGTH).strip() or None
    except (OSError, ValueError):
        return None


def write_last_boot(state_dir: Path, boot: str) -> None:
    """Call after the last boot is recovered, and before anything is claimed."""
    path = _path(state_dir)
    fresh = path.with_suffix(".new")
    with os.fdopen(open_new(fresh), "w", encoding="ascii") as file:
        file.write(f"{boot}\n")
    fresh.rename(path)


def _path(state_dir: Path) -> Path:
    return state_dir / "last.boot"
