"""A probe of the ledger: whether a job can be accepted, settled and committed now."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ductile.core.jobs.commands import HEALTH
from ductile.model import CORE_PREFIX, JobStatus, NewJob, Settlement, SubmittedBy
from ductile.store.engines.api import Tx
from ductile.store.jobs.claim import ClaimPolicy, start_job
from ductile.store.jobs.enqueue import enqueue_job
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig

PLUGIN = f"{CORE_PREFIX}health"


class Stage(StrEnum):
    ACCEPT = "accept"
    SETTLE = "settle"
    COMMIT = "commit"


class RolledBack(Exception):
    """Raised at the end of a probe, so that nothing of it is committed."""


class JobProbe:
    """A transaction that enqueues, claims and settles a job, and is then rolled back.

    It reads and changes the same pages as a real job. `stage` is the one that it reached.
    """

    def __init__(self, id: str, policy: ClaimPolicy, tx_config: TxConfig, now: datetime) -> None:
        self._id, self._policy, self._tx_config, self._now = id, policy, tx_config, now
        self.stage = Stage.ACCEPT

    def __call__(self, tx: Tx) -> None:
        self.stage = Stage.ACCEPT
        new = NewJob(PLUGIN, HEALTH, SubmittedBy.API)
        enqueue_job(tx, new, self._tx_config, id=self._id, now=self._now)
        tx.write_rows()
        self.stage = Stage.SETTLE
        claimed = start_job(tx, self._policy, self._id, self._now)
        assert claimed is not None
        settlement = Settlement(claimed.job, (JobStatus.SUCCEEDED,), self._now, result="{}")
        settle(tx, settlement, self._tx_config, self._id)
        tx.write_rows()
        raise RolledBack


def commit_nothing(tx: Tx, id: str, now: str) -> None:
    """A transaction that writes to the disk and leaves no row behind."""
    tx.run("insert_boot", id=id, pid=0, version="", now=now)
    tx.run("delete_boot", id=id)
