"""The nodes of one database: this one shows that it lives, and sees to those that do not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import startup
from ductile.engine.recovery.dead_nodes import Missing
from ductile.errors import LedgerError
from ductile.log import logger
from ductile.store import boots
from ductile.store.engines.api import Ledger

LOOK = 2.0
"""Seconds between two looks: well below what others wait before they take a node for dead."""
LET_GO_AFTER = 8.0
"""Seconds without our boot after which our processes end: before others begin their jobs anew."""


class Nodes:
    """`tick` is for a loop, where other nodes may share the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        compiled: Callable[[], CompiledConfig],
        clock: Clock,
        entropy: Entropy,
        let_go: Callable[[], None],
        returned: Callable[[], None],
    ) -> None:
        """`let_go` is to end the processes that run here; `returned` is called where others have
        taken this node for dead, and it is not."""
        self._ledger, self._boot, self._compiled = ledger, boot, compiled
        self._clock, self._entropy = clock, entropy
        self._let_go, self._returned = let_go, returned
        self._missing = Missing(ledger)
        self._held_at = clock.monotonic()
        self._has_let_go = False

    def tick(self, now: datetime) -> float:
        """Hold our boot, then recover the jobs of boots that are lost; seconds to the next look."""
        self._hold()
        owners, under_way = self._ledger.read(
            lambda tx: (boots.owners(tx), boots.is_under_way(tx, self._boot))
        )
        if not under_way:
            # Our boot is held: from here on nobody takes anything of ours.
            logger("nodes").error("other nodes took this one for dead; its jobs are theirs now")
            self._let_go()
            self._returned()
        others = [owner for owner in owners if owner is not None and owner != self._boot]
        lost = self._missing.lost(others, now)
        if lost:
            startup.recover(self._ledger, self._compiled(), self._clock, self._entropy, lost)
        return LOOK

    def _hold(self) -> None:
        try:
            self._ledger.claim_boot(self._boot)
        except LedgerError:
            if self._clock.monotonic() - self._held_at >= LET_GO_AFTER and not self._has_let_go:
                self._has_let_go = True
                logger("nodes").error("this node cannot show that it lives; its processes end")
                self._let_go()
            raise
        self._held_at, self._has_let_go = self._clock.monotonic(), False
