"""The nodes of one database: this one shows that it lives, and sees to those that do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, Entropy
from ductile.log import logger
from ductile.runtime import recovery
from ductile.runtime.abandoned import Missing
from ductile.runtime.blueprint import Blueprint
from ductile.store import boots
from ductile.store.ledger import Ledger

LOOK = 2.0
"""Seconds between two looks: well below what others wait before they take a node for dead."""


class Nodes:
    """`tick` is for a loop, where other nodes may share the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        blueprint: Callable[[], Blueprint],
        clock: Clock,
        entropy: Entropy,
        returned: Callable[[], None],
    ) -> None:
        """`returned` is called where others have taken this node for dead, and it is not."""
        self._ledger, self._boot, self._blueprint = ledger, boot, blueprint
        self._clock, self._entropy, self._returned = clock, entropy, returned
        self._missing = Missing(ledger)

    def tick(self, now: datetime) -> float:
        """Hold our boot, then recover the jobs of boots that are lost; seconds to the next look."""
        self._ledger.claim_boot(self._boot)
        owners, under_way = self._ledger.read(
            lambda tx: (boots.owners(tx), boots.is_under_way(tx, self._boot))
        )
        if not under_way:
            # Our boot is held: from here on nobody takes anything of ours.
            logger("nodes").error("other nodes took this one for dead; its jobs are theirs now")
            self._returned()
        others = [owner for owner in owners if owner is not None and owner != self._boot]
        lost = self._missing.lost(others, now)
        if lost:
            recovery.recover(self._ledger, self._blueprint(), self._clock, self._entropy, lost)
        return LOOK
