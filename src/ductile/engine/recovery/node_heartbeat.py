"""This node proves to the others that it is alive."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock
from ductile.engine.recovery.lease import NodeLease
from ductile.log import logger
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger, Tx

CHECK_SECONDS = 2.0
"""Well below the time after which other nodes consider a node dead."""


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
        set_drained: Callable[[bool, float], None],
    ) -> None:
        """`terminate_jobs` ends the local processes; `begin_boot` records boot and node again
        after other nodes have declared this one dead; `set_drained` receives what an operator
        has decided, and when the tick that read it began."""
        self._set_drained = set_drained
        self._ledger, self._boot, self._clock, self._lease = ledger, boot, clock, lease
        self._terminate_jobs, self._begin_boot = terminate_jobs, begin_boot

    def tick(self, now: datetime) -> float:  # noqa: ARG002
        """Prove that this node is alive; end its jobs if other nodes have taken them over."""
        since = self._clock.monotonic()
        self._ledger.claim_boot(self._boot)
        is_open, renewal = self._ledger.write_as_boot(self._renew)
        if not is_open:
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
            self._set_drained(renewal.is_drained, since)
        self._lease.renew(since)
        return CHECK_SECONDS

    def _renew(self, tx: Tx) -> tuple[bool, nodes.Renewal | None]:
        """Whether the boot is open, and the renewal of its node: in one commit, which each node
        makes every two seconds."""
        if not boots.is_open(tx, self._boot):
            return False, None
        return True, nodes.renew(tx, self._boot)
