"""The ledger's row of one boot: written when a gateway opens, ended when it closes."""

from __future__ import annotations

import os
from datetime import datetime

import ductile
from ductile.errors import LedgerError
from ductile.log import Logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger, Tx


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
