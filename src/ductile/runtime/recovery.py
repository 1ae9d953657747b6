"""After a crash: what ran goes back to the queue, or ends. Recovery never runs work itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, Entropy
from ductile.core.judge import judge
from ductile.model import Ending, Job, JobStatus, Outcome
from ductile.runtime.blueprint import Blueprint
from ductile.runtime.log import logger
from ductile.store import boots, finish
from ductile.store.ledger import Ledger, Tx
from ductile.store.settle import settle

BATCH = 1000


def recover(ledger: Ledger, blueprint: Blueprint, clock: Clock, entropy: Entropy) -> list[Job]:
    """Settle the running jobs of every boot that is no more, as lost attempts."""
    recovered: list[Job] = []
    for owner in ledger.read(boots.owners):
        if owner is not None and not ledger.boot_is_dead(owner):
            continue
        while True:
            now, chance = clock.now(), [entropy.uniform() for _ in range(BATCH)]
            batch = ledger.write(_recover_batch(owner, blueprint, now, chance))
            recovered += batch
            if len(batch) < BATCH:
                break
    log = logger("recovery")
    for job in recovered:
        log.warning(
            "recovered a job that ran when the gateway died",
            plugin=job.plugin,
            job_id=job.id,
            attempt=job.attempt,
        )
    return recovered


def _recover_batch(
    owner: str | None, blueprint: Blueprint, now: datetime, chance: list[float]
) -> Callable[[Tx], list[Job]]:
    lost = Outcome(Ending.LOST, reason="the gateway died while this job ran")

    def work(tx: Tx) -> list[Job]:
        orphans = finish.orphans(tx, owner, BATCH)
        for job, luck in zip(orphans, chance, strict=False):
            if job.started_at is None:
                finish.unstart(tx, job, now)
            else:
                rules = blueprint.rules(job.plugin, job.command)
                settle(tx, judge(job, lost, rules, now, luck))
        return orphans

    return work


def end_jobs_of_gone_plugins(ledger: Ledger, blueprint: Blueprint, clock: Clock) -> int:
    """Queued jobs of a plugin that was removed or disabled end `dead`, saying so."""
    count = 0
    plugins = ledger.read(lambda tx: [row[0] for row in tx.all("queued_plugins")])
    for plugin in plugins:
        reason = blueprint.gone(plugin)
        while reason is not None:
            batch = ledger.write(_end_batch(plugin, reason, clock.now()))
            count += batch
            if batch < BATCH:
                break
    return count


def _end_batch(plugin: str, reason: str, now: datetime) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        waiting = finish.queued_of(tx, plugin, BATCH)
        for job in waiting:
            finish.end_queued(tx, job, JobStatus.DEAD, reason, now)
        return len(waiting)

    return work
