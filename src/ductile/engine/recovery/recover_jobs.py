"""Jobs of dead boots return to the queue or end, at a start and while this node works.

Recovery runs no jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

from ductile.clock import Clock, Entropy
from ductile.core.jobs.judge import judge
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.dispatch.started_log import UnstartedAttempts
from ductile.log import logger
from ductile.model import Ending, Job, Outcome
from ductile.store import boots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import requeue
from ductile.store.jobs.settle import settle

BATCH = 1000


def recover_at_start(
    ledger: Ledger,
    compiled: CompiledConfig,
    clock: Clock,
    entropy: Entropy,
    last: str | None,
    unstarted: UnstartedAttempts,
) -> None:
    """Recover the jobs of the boots that have certainly ended.

    On SQLite these are all other boots. If nodes share a ledger it is only the `last` one of this
    state directory: another boot without a lock may be a node that is about to take its lock
    again after a restart of the database. `TakeoverMonitor` recovers those.
    """
    owners = ledger.read(boots.list_job_owners)
    if ledger.engine != "sqlite":
        owners = [owner for owner in owners if owner is None or owner == last]
    recover_boots(ledger, compiled, clock, entropy, owners, unstarted)


def recover_boots(
    ledger: Ledger,
    compiled: CompiledConfig,
    clock: Clock,
    entropy: Entropy,
    owners: Iterable[str | None],
    unstarted: UnstartedAttempts = frozenset(),
) -> None:
    """Settle the running jobs of these boots as lost attempts; unstarted ones are requeued.

    A boot whose lock is held is skipped.
    """
    recovered: list[tuple[Job, bool]] = []
    for owner in owners:
        while True:
            random = [(entropy.uniform(), entropy.uuid()) for _ in range(BATCH)]
            work = _recover_batch(owner, compiled, clock.now(), random, unstarted)
            found, batch = ledger.write(work)
            recovered += batch
            if found < BATCH:
                break
    log = logger("recovery")
    for job, began in recovered:
        log.warning(
            "recovered a job of a dead gateway",
            was_running=began,
            plugin=job.plugin,
            job_id=job.id,
            attempt=job.attempt,
            boot=job.owner,
        )


def _recover_batch(
    owner: str | None,
    compiled: CompiledConfig,
    now: datetime,
    random: list[tuple[float, str]],
    unstarted: UnstartedAttempts,
) -> Callable[[Tx], tuple[int, list[tuple[Job, bool]]]]:
    """The transaction; returns the number of jobs found, and those recovered: whether each ran."""
    lost = Outcome(Ending.LOST, reason="the gateway died while this job ran")

    def work(tx: Tx) -> tuple[int, list[tuple[Job, bool]]]:
        if owner is not None:
            if not tx.hold("boot", owner, wait=False):
                # It is alive after all, or another node recovers it.
                return 0, []
            boots.end_boot(tx, owner, now)
        orphans = requeue.list_orphans(tx, owner, BATCH)
        recovered = []
        for job, (chance, base_id) in zip(orphans, random, strict=False):
            began = job.started_at is not None and (owner, job.id, job.attempt) not in unstarted
            if not began and not requeue.was_claim_undone(tx, job):
                ended = requeue.undo_claim(tx, job, now)
            else:
                rules = compiled.rules(job.plugin, job.command)
                settlement = judge(job, lost, rules, now, chance)
                ended = settle(tx, settlement, compiled.tx_config, base_id) is not None
            if ended:
                recovered.append((job, began))
        return len(orphans), recovered

    return work
