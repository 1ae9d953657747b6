"""Queued jobs of plugins that the configuration has dropped end; those of missing ones wait."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import Clock, Entropy, Ids
from ductile.engine.config.compiled import REMOVED, CompiledConfig
from ductile.log import logger
from ductile.model import Job, JobStatus
from ductile.store import boots, nodes
from ductile.store.engines.api import Ledger, Tx
from ductile.store.jobs import close, requeue
from ductile.store.tx_config import TxConfig

BATCH = 1000


def end_jobs_of_removed_plugins(
    ledger: Ledger, compiled: CompiledConfig, clock: Clock, entropy: Entropy, boot: str
) -> None:
    """End the queued jobs of removed or disabled plugins as `dead`, and log each with the reason.

    The jobs of a plugin that another registered node has are left to it, even if it does not run
    at present.
    """
    if _has_unregistered_nodes(ledger, boot):
        return
    plugins = ledger.read(lambda tx: [row[0] for row in tx.all("queued_plugins")])
    for plugin in plugins:
        snapshot_ids = None
        reason = compiled.gone(plugin)
        if reason is None:
            snapshot_ids = list_snapshots_before_removal(ledger, compiled, plugin)
            reason = REMOVED if snapshot_ids else None
        while reason is not None:
            ending = _EndedPlugin(plugin, reason, snapshot_ids, boot)
            work = _end_batch(ending, clock.now(), compiled.tx_config, entropy.uuid())
            found, ended = ledger.write(work)
            _log_ended(ended, reason)
            if found < BATCH:
                break


def _has_unregistered_nodes(ledger: Ledger, boot: str) -> bool:
    """Whether a living node of an older version has not registered its plugins."""
    others = set(ledger.read(lambda tx: boots.list_other_open(tx, boot)))
    registered = {row["boot"] for row in ledger.read(nodes.list_nodes)}
    return not all(map(ledger.boot_is_dead, others - registered))


def count_jobs_of_absent_plugins(ledger: Ledger, compiled: CompiledConfig) -> dict[str, int]:
    """The plugins that no root has, and how many queued jobs wait for each."""
    rows = ledger.read(lambda tx: tx.all("queue_by_plugin"))
    return {
        plugin: jobs
        for plugin, status, jobs, _ in rows
        if status == "queued" and compiled.absence(plugin) is not None
    }


def list_snapshots_before_removal(
    ledger: Ledger, compiled: CompiledConfig, plugin: str
) -> list[str] | None:
    """The configurations, by the ids of their snapshots, that the queued jobs of this plugin were
    created under and since which the plugin was removed.
    """
    if compiled.absence(plugin) is None:
        return None
    rows = ledger.read(lambda tx: tx.all("snapshots_of_queued", plugin=plugin))
    return [id for id, config in rows if compiled.has_removed(plugin, orjson.loads(config))]


def _log_ended(ended: Iterable[Job], reason: str) -> None:
    log = logger("recovery")
    for job in ended:
        log.warning("ended a queued job", plugin=job.plugin, job_id=job.id, reason=reason)


@dataclass(frozen=True, slots=True)
class _EndedPlugin:
    plugin: str
    reason: str
    snapshot_ids: list[str] | None
    """Only jobs that were created under these configurations; None means all."""
    boot: str
    """The boot of the node whose configuration has dropped the plugin."""


def _end_batch(
    ending: _EndedPlugin, now: datetime, tx_config: TxConfig, base_id: str
) -> Callable[[Tx], tuple[int, list[Job]]]:
    """The transaction; returns the number of jobs found, and those ended."""

    def work(tx: Tx) -> tuple[int, list[Job]]:
        ids = Ids(base_id)
        nodes.hold_registry(tx)
        if nodes.list_others_with_plugin(tx, ending.plugin, ending.boot):
            return 0, []
        queued = requeue.list_queued(tx, ending.plugin, BATCH, ending.snapshot_ids)
        ended = [
            job
            for job in queued
            if close.end_queued(tx, job, JobStatus.DEAD, ending.reason, now, tx_config, ids)
        ]
        return len(queued), ended

    return work
