"""After a crash: what ran goes back to the queue, or ends. Recovery never runs work itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

from ductile.clock import Clock, Entropy, Ids
from ductile.core.jobs.judge import judge
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.dispatch.started_log import UnstartedAttempts
from ductile.log import logger
from ductile.model import Ending, Job, JobStatus, Outcome
from ductile.store import boots
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import close, requeue
from ductile.store.jobs.settle import settle
from ductile.store.tx_config import TxConfig

BATCH = 1000
HOUR = timedelta(hours=1)
LEFT_TO_OTHERS = timedelta(minutes=15)
"""How long jobs of a plugin that this node does not know wait for another that does."""


def at_start(
    ledger: Ledger,
    compiled: CompiledConfig,
    clock: Clock,
    entropy: Entropy,
    last: str | None,
    unstarted: UnstartedAttempts,
) -> None:
    """Recover the jobs of the boots that have certainly ended.

    On SQLite that is every other. Where nodes share a ledger it is the `last` one of this state
    directory alone: a boot that nobody holds may be a node that takes its lock again just now,
    after a restart of the database that has let us start, too. Theirs wait for `Nodes`.
    """
    owners = ledger.read(boots.owners)
    if ledger.engine != "sqlite":
        owners = [owner for owner in owners if owner is None or owner == last]
    recover(ledger, compiled, clock, entropy, owners, unstarted)


def recover(
    ledger: Ledger,
    compiled: CompiledConfig,
    clock: Clock,
    entropy: Entropy,
    owners: Iterable[str | None],
    unstarted: UnstartedAttempts = frozenset(),
) -> None:
    """Settle the running jobs of these boots as lost attempts; those that had not begun go back as
    they were. None of a boot that is held."""
    recovered: list[tuple[Job, bool]] = []
    for owner in owners:
        while True:
            luck = [(entropy.uniform(), entropy.uuid()) for _ in range(BATCH)]
            work = _recover_batch(owner, compiled, clock.now(), luck, unstarted)
            found, batch = ledger.write(work)
            recovered += batch
            if found < BATCH:
                break
    log = logger("recovery")
    for job, began in recovered:
        what = "ran" if began else "was about to run"
        log.warning(
            f"recovered a job that {what} when the gateway died",
            plugin=job.plugin,
            job_id=job.id,
            attempt=job.attempt,
            boot=job.owner,
        )


def _recover_batch(
    owner: str | None,
    compiled: CompiledConfig,
    now: datetime,
    luck: list[tuple[float, str]],
    unstarted: UnstartedAttempts,
) -> Callable[[Tx], tuple[int, list[tuple[Job, bool]]]]:
    """How many there were, and those of them that nobody else has ended: whether each had begun."""
    lost = Outcome(Ending.LOST, reason="the gateway died while this job ran")

    def work(tx: Tx) -> tuple[int, list[tuple[Job, bool]]]:
        if owner is not None:
            if not tx.hold("boot", owner, wait=False):
                # It lives after all, or another node sees to it.
                return 0, []
            boots.end(tx, owner, now)
        orphans = requeue.list_orphans(tx, owner, BATCH)
        recovered = []
        for job, (chance, base_id) in zip(orphans, luck, strict=False):
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


def end_jobs_of_gone_plugins(
    ledger: Ledger, compiled: CompiledConfig, clock: Clock, entropy: Entropy, boot: str
) -> int:
    """Queued jobs of a plugin that was removed or disabled end `dead`, saying so.

    Another node may have adopted already what this one will: its new jobs are left to it.
    """
    count = 0
    others = ledger.read(lambda tx: boots.others(tx, boot))
    # An hour ahead where we are alone: a clock may have been set back.
    ahead = HOUR if all(map(ledger.boot_is_dead, others)) else -LEFT_TO_OTHERS
    until = clock.now() + ahead
    plugins = ledger.read(lambda tx: [row[0] for row in tx.all("queued_plugins")])
    for plugin in plugins:
        reason = compiled.gone(plugin)
        while reason is not None:
            batch = ledger.write(
                _end_batch(plugin, reason, clock.now(), until, compiled.tx_config, entropy.uuid())
            )
            count += batch
            if batch < BATCH:
                break
    return count


def _end_batch(
    plugin: str, reason: str, now: datetime, until: datetime, tx_config: TxConfig, base_id: str
) -> Callable[[Tx], int]:
    def work(tx: Tx) -> int:
        ids = Ids(base_id)
        waiting = requeue.list_queued(tx, plugin, until, BATCH)
        for job in waiting:
            close.end_queued(tx, job, JobStatus.DEAD, reason, now, tx_config, ids)
        return len(waiting)

    return work
