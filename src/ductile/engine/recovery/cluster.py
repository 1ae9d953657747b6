"""Nodes that share a database: this one proves that it is alive, and takes over from dead ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ductile.clock import Clock, Entropy
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery import startup
from ductile.engine.recovery.dead_nodes import MissingBoots, StaleNodes
from ductile.engine.recovery.lease import NodeLease
from ductile.log import logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger

CHECK_SECONDS = 2.0
"""Well below the time after which other nodes consider a node dead."""
GONE_SECONDS = 60.0
"""Seconds after which a node that did not stop regularly is not expected to run jobs again."""


class NodeHeartbeat:
    """Holds the lock of this boot and renews its lease; a loop calls `tick`."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        clock: Clock,
        lease: NodeLease,
        terminate_jobs: Callable[[], None],
        begin_boot: Callable[[], None],
        set_drained: Callable[[bool], None],
    ) -> None:
        """`terminate_jobs` ends the local processes; `begin_boot` records boot and node again
        after other nodes have declared this one dead; `set_drained` receives what an operator
        has decided."""
        self._set_drained = set_drained
        self._ledger, self._boot, self._clock, self._lease = ledger, boot, clock, lease
        self._terminate_jobs, self._begin_boot = terminate_jobs, begin_boot

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Prove that this node is alive; end its jobs if other nodes have taken them over."""
        since = self._clock.monotonic()
        self._ledger.claim_boot(self._boot)
        if not self._ledger.write_as_boot(lambda tx: boots.is_open(tx, self._boot)):
            # The lock is held again: from now on no other node takes over this one's jobs.
            logger("nodes").error("other nodes declared this node dead; terminating local jobs")
            self._lease.begin_term()
            self._terminate_jobs()
            self._begin_boot()
        renewal = self._ledger.write_as_boot(lambda tx: nodes.renew(tx, self._boot))
        if renewal is None:
            # The row was deleted, or replaced while this node did not answer.
            self._begin_boot()
        else:
            self._set_drained(renewal.is_drained)
        self._lease.renew(since)
        return CHECK_SECONDS


class ClusterMonitor:
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

    def tick(self, now: datetime) -> float:
        owners, rows = self._ledger.read(
            lambda tx: (boots.list_job_owners(tx), nodes.list_nodes(tx))
        )
        self.has_others = any(self._runs_jobs_elsewhere(row) for row in rows)
        others = [owner for owner in owners if owner is not None and owner != self._boot]
        lost = set(self._missing.find_lost(others, now))
        for row in self._stale.find_stale(rows, now):
            boot = row["boot"]
            if boot != self._boot and self._is_fenced(row["name"], boot) and boot in others:
                lost.add(boot)
        if lost:
            startup.recover_boots(
                self._ledger, self._compiled(), self._clock, self._entropy, sorted(lost)
            )
        return CHECK_SECONDS

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
