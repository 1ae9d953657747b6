"""After a crash: what ran goes back to the queue, or ends. Recovery never runs work itself."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from ductile.clock import Clock, Entropy, Ids
from ductile.core.judge import judge
from ductile.log import logger
from ductile.model import Ending, Job, JobStatus, Outcome
from ductile.runtime.blueprint import Blueprint
from ductile.store import boots, finish, requeue
from ductile.store.chart import Chart
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
            luck = [(entropy.uniform(), entropy.uuid()) for _ in range(BATCH)]
            batch = ledger.write(_recover_batch(owner, blueprint, clock.now(), luck))
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
    owner: str | None, blueprint: Blueprint, now: datetime, luck: list[tuple[float, str]]
) -> Callable[[Tx], list[Job]]:
    lost = Outcome(Ending.LOST, reason="the gateway died while this job ran")

    def work(tx: Tx) -> list[Job]:
        orphans = requeue.orphans(tx, owner, BATCH)
        for job, (chance, base_id) in zip(orphans, luck, strict=False):
            if job.started_at is None:
                requeue.unstart(tx, job, now)
            else:
                rules = blueprint.rules(job.plugin, job.command)
                settle(tx, judge(job, lost, rules, now, chance), blueprint.chart, base_id)
        return orphans

    return work


def end_jobs_of_gone_plugins(
    ledger: Ledger, blueprint: Blueprint, clock: Clock, entropy: Entropy
) -> int:
    """Queued jobs of a plugin that was removed or disabled end `dead`, saying so."""
    count = 0
    plugins = ledger.read(lambda tx: [row[0] for row in tx.all("queued_plugins")])
    for plugin in plugins:
        reason = blueprint.gone(plugin)
        while reason is not None:
            batch = ledger.write(
                _end_batch(plugin, reason, clock.now(), blueprint.chart, entropy.uuid())
            )
            count += batch
            if batch < BATCH:
                break
    return count


def _end_batch(
    plugin: str, reason: str, now: datetime, chart: Chart, base_id: str
) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        ids = Ids(base_id)
        waiting = requeue.queued_of(tx, plugin, BATCH)
        for job in waiting:
            finish.end_queued(tx, job, JobStatus.DEAD, reason, now, chart, ids)
        return len(waiting)

    return work
