"""Nodes that share a database: this one holds its lock, and recovers the jobs of dead ones."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import startup
from ductile.engine.recovery.dead_nodes import MissingBoots
from ductile.errors import LedgerError
from ductile.log import logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger

CHECK_SECONDS = 2.0
"""Well below the time after which other nodes consider a node dead."""
TERMINATE_AFTER = 8.0
"""Seconds without the lock after which local jobs are terminated: before others start them."""


class ClusterMonitor:
    """A loop calls `tick` if other nodes may share the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        compiled: Callable[[], CompiledConfig],
        clock: Clock,
        entropy: Entropy,
        terminate_jobs: Callable[[], None],
        begin_boot: Callable[[], None],
    ) -> None:
        """`terminate_jobs` ends the local processes; `begin_boot` records the boot again after
        other nodes have declared it dead."""
        self._ledger, self._boot, self._compiled = ledger, boot, compiled
        self._clock, self._entropy = clock, entropy
        self._terminate_jobs, self._begin_boot = terminate_jobs, begin_boot
        self._missing = MissingBoots(ledger)
        self._held_at = clock.monotonic()
        self._has_terminated = False

    def tick(self, now: datetime) -> float:
        """Hold the lock of this boot, then recover the jobs of lost boots."""
        self._hold()
        owners, under_way = self._ledger.read(
            lambda tx: (boots.list_job_owners(tx), boots.is_open(tx, self._boot))
        )
        if not under_way:
            # The lock is held again: from now on no other node takes over this one's jobs.
            logger("nodes").error("other nodes declared this node dead; terminating local jobs")
            self._terminate_jobs()
            self._begin_boot()
        if not self._ledger.write(lambda tx: nodes.renew(tx, self._boot)):
            # The row was deleted, or replaced while this node did not answer.
            self._begin_boot()
        others = [owner for owner in owners if owner is not None and owner != self._boot]
        lost = self._missing.find_lost(others, now)
        if lost:
            startup.recover_boots(self._ledger, self._compiled(), self._clock, self._entropy, lost)
        return CHECK_SECONDS

    def _hold(self) -> None:
        try:
            self._ledger.claim_boot(self._boot)
        except LedgerError:
            if (
                self._clock.monotonic() - self._held_at >= TERMINATE_AFTER
                and not self._has_terminated
            ):
                self._has_terminated = True
                logger("nodes").error("node lease lost; terminating local jobs")
                self._terminate_jobs()
            raise
        self._held_at, self._has_terminated = self._clock.monotonic(), False
