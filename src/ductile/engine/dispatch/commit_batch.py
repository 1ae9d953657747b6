"""Transactions of the dispatcher: settlements, and the claims of the jobs that follow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from ductile.engine.dispatch.attempt import Attempt
from ductile.engine.dispatch.started_log import StartedLog
from ductile.model import Settlement
from ductile.store.engines.api import Tx
from ductile.store.jobs.claim import ClaimedJob, ClaimPolicy, claim
from ductile.store.jobs.settle import settle_many
from ductile.store.tx_config import TxConfig

CommitResult = tuple[list[Settlement | None], list[ClaimedJob]]
"""What became of each settlement (None: the attempt had ended already), and the claimed jobs."""


class CommitBatch:
    """One transaction: settlements, and claims for idle workers and ahead of them."""

    __slots__ = ("attempts", "claims", "entries", "is_alone", "lease_term", "prefetch")

    def __init__(self, attempts: list[Attempt], claims: int, prefetch: int = 0) -> None:
        self.attempts, self.claims, self.prefetch = attempts, claims, prefetch
        self.entries: list[int] = []
        """The entries of the claimed jobs in the started log."""
        self.lease_term: int | None = None
        """The term of the node's lease in which the jobs are claimed."""
        self.is_alone = any(attempt.commit_alone for attempt in attempts)
        """Whether it is one settlement that must not be committed with others."""

    def run(
        self,
        tx_config: TxConfig,
        policy: ClaimPolicy,
        now: datetime,
        started_log: StartedLog,
        tx: Tx,
    ) -> CommitResult:
        """The transaction. It may run more than once."""
        settlements = [(attempt.settlement, attempt.base_id) for attempt in self.attempts]
        settled = settle_many(tx, settlements, tx_config)
        ended = [one.job.plugin for one in settled if one is not None]
        claimed = claim(tx, policy, now, self.claims, self.prefetch, ended)
        # Before the commit: after a crash in between, the jobs would count as started.
        started_log.revoke(*self.entries)
        self.entries = [started_log.add(one.job.id, one.job.attempt) for one in claimed]
        return settled, claimed


def split_batches(
    settling: list[Attempt], claims: int, prefetch: int, limit: int
) -> Iterator[CommitBatch]:
    """Transactions of at most `limit` settlements and `limit` claims each.

    Nothing is prefetched where one transaction is not enough. A settlement that is to be committed
    alone has a transaction without claims.
    """
    yield from (CommitBatch([attempt], 0) for attempt in settling if attempt.commit_alone)
    together = [attempt for attempt in settling if not attempt.commit_alone]
    if max(len(together), claims + prefetch) > limit:
        prefetch = 0
    while together or claims:
        some, together = together[:limit], together[limit:]
        claims_now = min(claims, limit)
        yield CommitBatch(some, claims_now, prefetch)
        claims -= claims_now
