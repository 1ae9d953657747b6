"""Jobs that run here by the ledger, and that nobody here has in hand.

A claim whose commit was never answered, or a settlement that met a bug, leaves one: its owner
lives, so that no recovery looks for it. Nobody would end it before the next start.
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

LOOK = 30.0
LOOKS = 4
"""So many in a row, a minute and a half: an answer that is late by less still finds its job."""

Attempt = tuple[str, int]
"""The job's id, and which attempt of it."""


class OrphanSweeper:
    """`tick` is for a loop."""

    def __init__(
        self,
        ledger: Ledger,
        boot: str,
        in_hand: Callable[[], Container[str]],
        compiled: Callable[[], CompiledConfig],
        entropy: Entropy,
    ) -> None:
        """`in_hand` names the jobs that are at work here, from their claim to their settlement."""
        self._ledger, self._boot, self._in_hand = ledger, boot, in_hand
        self._compiled, self._entropy = compiled, entropy
        self._seen: dict[Attempt, int] = {}

    def tick(self, now: datetime) -> float:
        """End what was a stray at the last looks, too; seconds to the next."""
        running = self._ledger.read(lambda tx: requeue.list_running(tx, self._boot))
        # After the ledger: what has been settled meanwhile is no stray at the next look.
        held, seen = self._in_hand(), self._seen
        self._seen = {one: seen.get(one, 0) + 1 for one in running if one[0] not in held}
        for attempt, looks in self._seen.items():
            if looks >= LOOKS:
                self._end(attempt, now)
        return LOOK

    def _end(self, attempt: Attempt, now: datetime) -> None:
        compiled = self._compiled()
        chance, base_id = self._entropy.uniform(), self._entropy.uuid()

        def work(tx: Tx) -> Job | None:
            job = read.load_job(tx, attempt[0])
            if job is None or (job.owner, job.attempt) != (self._boot, attempt[1]):
                return None
            rules = compiled.rules(job.plugin, job.command)
            lost = Outcome(Ending.LOST, reason="the gateway lost sight of this job")
            settled = settle(tx, judge(job, lost, rules, now, chance), compiled.tx_config, base_id)
            return job if settled else None

        log = logger("orphans")
        try:
            job = self._ledger.write(work)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - it must not keep the others waiting
            log.crash("a stray job cannot be ended", error, job_id=attempt[0])
            return
        if job is not None:
            about = {"plugin": job.plugin, "job_id": job.id, "attempt": job.attempt}
            log.error("a job ran by the ledger, and nobody had it in hand", **about)
