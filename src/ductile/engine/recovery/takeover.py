"""Takes over the jobs of dead nodes, after their sessions have been ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import node_heartbeat
from ductile.engine.recovery.dead_nodes import MissingBoots, StaleNodes
from ductile.engine.recovery.recover_jobs import recover_boots
from ductile.log import logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger

GONE_SECONDS = 60.0
"""Seconds after which a node that did not stop regularly is not expected to run jobs again."""


class TakeoverMonitor:
    """Fences nodes that do not answer, and recovers the jobs of dead ones; a loop calls `tick`."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        compiled: Callable[[], CompiledConfig],
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        self._ledger, self._boot, self._compiled = ledger, boot, compiled
        self._clock, self._entropy = clock, entropy
        self._missing, self._stale = MissingBoots(ledger), StaleNodes()
        self.has_others = True
        """Whether another node may run jobs, as far as is known."""
        self.rows: list[dict[str, Any]] = []
        """The registered nodes at the last look."""

    def tick(self, now: datetime) -> float:
        owners, rows = self._ledger.read(
            lambda tx: (boots.list_job_owners(tx), nodes.list_nodes(tx))
        )
        self.rows = rows
        self.has_others = any(self._runs_jobs_elsewhere(row) for row in rows)
        others = [owner for owner in owners if owner is not None and owner != self._boot]
        lost = set(self._missing.find_lost(others, now))
        for row in self._stale.find_stale(rows, now):
            boot = row["boot"]
            if boot != self._boot and self._is_fenced(row["name"], boot) and boot in others:
                lost.add(boot)
        if lost:
            recover_boots(self._ledger, self._compiled(), self._clock, self._entropy, sorted(lost))
        return node_heartbeat.CHECK_SECONDS

    def _runs_jobs_elsewhere(self, row: Mapping[str, Any]) -> bool:
        is_living = row["stopped_at"] is None and row["seconds_since_seen"] < GONE_SECONDS
        return is_living and row["boot"] != self._boot

    def _is_fenced(self, name: str, boot: str) -> bool:
        """Whether this silent node has no session left; its sessions are ended first."""
        if self._ledger.boot_is_dead(boot):
            return True
        count = self._ledger.end_sessions(boot)
        logger("nodes").error("node does not answer; ended its sessions", node=name, sessions=count)
        return False
