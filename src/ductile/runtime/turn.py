"""What the dispatcher wants of the ledger: the ends that have gathered, and what to run next."""

from __future__ import annotations

from datetime import datetime

from ductile.model import Settlement
from ductile.runtime.seat import Seat
from ductile.store.chart import Chart
from ductile.store.claim import Claimed, ClaimPolicy, claim
from ductile.store.ledger import Ledger, Tx
from ductile.store.settle import settle

TRIES_WHILE_STOPPING = 2
"""How often a settlement that the ledger refuses is tried again once the gateway stops."""

Result = tuple[list[Settlement | None], list[Claimed]]
"""What was settled of each errand, and the jobs that come next."""


class Errand:
    """What is wanted of the ledger for a seat: settle its job, if it had one; claim the next."""

    __slots__ = ("alone", "base_id", "seat", "settlement", "tries")

    def __init__(self, seat: Seat, settlement: Settlement | None = None, base_id: str = "") -> None:
        self.seat, self.settlement, self.base_id = seat, settlement, base_id
        self.tries = TRIES_WHILE_STOPPING
        self.alone = False
        """Set once a transaction with others has failed: it may be this one's fault, or theirs."""


class Turn:
    """One transaction: the ends that have gathered, and a start for every seat that is free."""

    __slots__ = ("_chart", "_now", "_policy", "errands")

    def __init__(
        self, errands: list[Errand], chart: Chart, policy: ClaimPolicy | None, now: datetime
    ) -> None:
        self.errands = errands
        self._chart, self._policy, self._now = chart, policy, now

    def __call__(self, tx: Tx) -> Result:
        done = [
            errand.settlement and settle(tx, errand.settlement, self._chart, errand.base_id)
            for errand in self.errands
        ]
        claimed: list[Claimed] = []
        while self._policy is not None and len(claimed) < len(self.errands):
            job = claim(tx, self._policy, self._now)
            if job is None:
                break
            claimed.append(job)
        return done, claimed


def parted(errands: list[Errand], ledger: Ledger) -> list[list[Errand]]:
    """As many together as the ledger takes well."""
    together = [errand for errand in errands if not errand.alone]
    parts = [[errand] for errand in errands if errand.alone]
    for start in range(0, len(together), ledger.at_once):
        parts.append(together[start : start + ledger.at_once])
    return parts
