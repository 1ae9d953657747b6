"""What the dispatcher wants of the ledger: the ends that have gathered, and what to run next."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from datetime import datetime

from ductile.engine.dispatch.started_log import StartedLog
from ductile.model import Settlement
from ductile.store.engines.api import Tx
from ductile.store.jobs.claim import Claimed, ClaimPolicy, claim
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig

TRIES_WHILE_STOPPING = 2
"""How often a settlement that the ledger refuses is tried again once the gateway stops."""

Result = tuple[list[Settlement | None], list[Claimed]]
"""The settlement of each errand, and the jobs claimed for `BatchPart.places`."""


class PendingSettlement:
    """A settlement that is to be brought to the ledger."""

    __slots__ = ("alone", "base_id", "settlement", "tries", "waits")

    def __init__(self, settlement: Settlement, base_id: str) -> None:
        self.settlement, self.base_id = settlement, base_id
        self.tries = TRIES_WHILE_STOPPING
        self.alone = False
        """Set once a transaction with others has failed: it may be this one's fault, or theirs."""
        self.waits = False
        """Set once the ledger was away for it."""


class BatchPart:
    """What goes into one transaction: ends, and claims for seats and ahead of them."""

    __slots__ = ("ahead", "errands", "places", "seats")

    def __init__(self, errands: list[PendingSettlement], seats: int, ahead: int = 0) -> None:
        self.errands, self.seats, self.ahead = errands, seats, ahead
        self.places: list[int] = []
        """Where the started_log has what was claimed."""


class CommitBatch:
    """One transaction."""

    __slots__ = ("_now", "_policy", "_share", "_started_log", "_tx_config")

    def __init__(
        self,
        share: BatchPart,
        tx_config: TxConfig,
        policy: ClaimPolicy,
        now: datetime,
        started_log: StartedLog,
    ) -> None:
        self._share, self._tx_config, self._policy, self._now = share, tx_config, policy, now
        self._started_log = started_log

    def __call__(self, tx: Tx) -> Result:
        share, started_log = self._share, self._started_log
        done = [
            settle(tx, errand.settlement, self._tx_config, errand.base_id)
            for errand in share.errands
        ]
        claimed = claim(tx, self._policy, self._now, share.seats, share.ahead)
        # Not after the commit: a crash in between would count them. It may be done again.
        started_log.revoke(*share.places)
        share.places = [started_log.enter(one.job.id, one.job.attempt) for one in claimed]
        return done, claimed


def parted(
    errands: list[PendingSettlement], seats: int, ahead: int, at_once: int
) -> Iterator[BatchPart]:
    """As much together as the ledger takes well; nothing ahead where that is not all.

    What is alone is alone with its faults: the claims come with others.
    """
    together = deque(errand for errand in errands if not errand.alone)
    yield from (BatchPart([errand], 0) for errand in errands if errand.alone)
    whole = max(len(together), seats + ahead) <= at_once
    while together or seats:
        some = [together.popleft() for _ in range(min(len(together), at_once))]
        claims = min(seats, at_once)
        yield BatchPart(some, claims, ahead if whole else 0)
        seats -= claims
