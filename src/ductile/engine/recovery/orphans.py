"""Orphaned jobs: marked running by this boot, but no worker owns them.

An unacknowledged claim or an error in a settlement leaves one. Its boot is alive, so no recovery
would end it before the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import datetime

from ductile.clock import Entropy
from ductile.core.jobs.judge import judge
from ductile.engine.config.compiled import CompiledConfig
from ductile.errors import LedgerError
from ductile.log import logger
from ductile.model import Ending, Job, Outcome
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import read, requeue
from ductile.store.jobs.settle import settle

CHECK_SECONDS = 30.0
MIN_CHECKS = 4
"""Consecutive checks, a minute and a half: a result that is late by less still finds its job."""

Attempt = tuple[str, int]
"""A job's id and the number of its attempt."""


class OrphanSweeper:
    """Settles orphaned jobs as lost attempts; a loop calls `tick`."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        owned_jobs: Callable[[], Container[str]],
        compiled: Callable[[], CompiledConfig],
        entropy: Entropy,
    ) -> None:
        """`owned_jobs` returns the ids of the jobs that are claimed here and not settled."""
        self._ledger, self._boot, self._owned_jobs = ledger, boot, owned_jobs
        self._compiled, self._entropy = compiled, entropy
        self._seen: dict[Attempt, int] = {}

    def tick(self, now: datetime) -> float:
        """Settle jobs that were orphaned at the last checks as well."""
        running = self._ledger.read(lambda tx: requeue.list_running(tx, self._boot))
        # Read after the ledger: a job settled meanwhile is not orphaned at the next check.
        owned, seen = self._owned_jobs(), self._seen
        self._seen = {one: seen.get(one, 0) + 1 for one in running if one[0] not in owned}
        for attempt, checks in self._seen.items():
            if checks >= MIN_CHECKS:
                self._settle_lost(attempt, now)
        return CHECK_SECONDS

    def _settle_lost(self, attempt: Attempt, now: datetime) -> None:
        compiled = self._compiled()
        chance, base_id = self._entropy.uniform(), self._entropy.uuid()

        def work(tx: Tx) -> Job | None:
            job = read.load_job(tx, attempt[0])
            if job is None or (job.owner, job.attempt) != (self._boot, attempt[1]):
                return None
            rules = compiled.rules(job.plugin, job.command)
            lost = Outcome(Ending.LOST, reason="the gateway lost track of this job")
            settled = settle(tx, judge(job, lost, rules, now, chance), compiled.tx_config, base_id)
            return job if settled else None

        log = logger("orphans")
        try:
            job = self._ledger.write(work)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - affects only this job
            log.crash("orphaned job could not be settled", error, job_id=attempt[0])
            return
        if job is not None:
            fields = {"plugin": job.plugin, "job_id": job.id, "attempt": job.attempt}
            log.error("orphaned job: marked running, but no worker owns it", **fields)
