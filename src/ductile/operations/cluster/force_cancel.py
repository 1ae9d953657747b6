"""Cancelling a job whose node does not answer."""

from __future__ import annotations

from ductile.core.jobs.judge import plugin_gone
from ductile.engine.services import Services
from ductile.errors import Refused
from ductile.model import Cancellation, JobStatus
from ductile.operations.jobs import cancel, load_job
from ductile.store import nodes
from ductile.store.jobs.settle import settle

SILENT_AFTER = 5.0
"""Seconds without a renewal after which a node does not answer; it renews every two."""


def force_cancel(services: Services, job_id: str, *, dry: bool) -> JobStatus:
    """End a running job in the ledger, without its node; returns the status it had.

    The sessions of the node are ended, so that its late result is refused. A queued job, or one of
    this node, is cancelled as usual. Raises `Refused` if the node answers.
    """
    job = services.ledger.read(lambda tx: load_job(tx, job_id))
    owner = job.owner
    if job.status is not JobStatus.RUNNING or owner in (None, services.boot):
        return cancel(services, job_id, dry=dry)
    assert owner is not None
    for row in services.ledger.read(nodes.list_nodes):
        if row["boot"] == owner and row["seconds_since_seen"] < SILENT_AFTER:
            raise Refused(
                f"node {row['name']}, which runs job {job_id}, answers; omit force",
                run=f"ductile job cancel {job_id}",
            )
    if dry:
        return job.status
    services.ledger.end_sessions(owner)
    rules, now = services.compiled.rules(job.plugin, job.command), services.clock.now()
    settlement = plugin_gone(job, Cancellation.OPERATOR.value, rules, now)
    tx_config, base_id = services.compiled.tx_config, services.entropy.uuid()
    if services.ledger.write(lambda tx: settle(tx, settlement, tx_config, base_id)) is None:
        raise Refused(f"job {job_id} has ended, or was taken over, meanwhile; look at it again")
    return job.status
