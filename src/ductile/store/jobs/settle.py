"""Settling an attempt: everything that its end changes, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from ductile.clock import Ids, to_text
from ductile.core.jobs.state_machine import ENDED, edges
from ductile.model import JobStatus, Settlement
from ductile.store import notices
from ductile.store.engines.api import Tx
from ductile.store.flow.gate import close_key
from ductile.store.jobs import close, plugin_state, spawn
from ductile.store.jobs.closing.work import JobEnd
from ductile.store.jobs.job_log import log_attempt, log_transition
from ductile.store.jobs.spawn import SpawnPoint
from ductile.store.tx_config import TxConfig
from ductile.store.waits import parked_jobs


def settle_many(
    tx: Tx, settlements: Sequence[tuple[Settlement, str]], tx_config: TxConfig
) -> list[Settlement | None]:
    """As `settle` for each settlement and its base id; the jobs are updated together if possible.

    Those are settled one after the other that depend on the plugin's state, and those in a scope:
    a scope must not see that its other jobs have ended before these have started their next steps.
    """
    together = [settlement for settlement, _ in settlements if _is_independent(settlement)]
    updated = tx.update_each("settle_job", [_job_values(settlement) for settlement in together])
    settled: list[Settlement | None] = []
    for settlement, base_id in settlements:
        if not _is_independent(settlement):
            settled.append(settle(tx, settlement, tx_config, base_id))
        elif settlement.job.id in updated:
            _write_settled(tx, settlement, tx_config, Ids(base_id))
            settled.append(settlement)
        else:
            settled.append(None)
    return settled


def settle(tx: Tx, settlement: Settlement, tx_config: TxConfig, base_id: str) -> Settlement | None:
    """Write the settlement, or its `otherwise` if the plugin's new state is too large.

    The ids of new rows are derived from `base_id`. Returns what was settled; None if another
    process has already ended the attempt.
    """
    if settlement.wait is not None:
        return _begin_wait(tx, settlement, tx_config, Ids(base_id))
    new_state = None
    if _depends_on_state(settlement):
        new_state = plugin_state.update_state(tx, settlement)
        if new_state is None:
            assert settlement.otherwise is not None
            settlement = settlement.otherwise
    if not tx.run("settle_job", **_job_values(settlement)):
        return None
    _write_settled(tx, settlement, tx_config, Ids(base_id), new_state)
    return settlement


def _is_independent(settlement: Settlement) -> bool:
    """Whether its job's update needs nothing but the guard, and no other settlement sees it."""
    is_plain = settlement.job.scope_id is None and settlement.wait is None
    return is_plain and not _depends_on_state(settlement)


def _depends_on_state(settlement: Settlement) -> bool:
    return settlement.state_updates is not None and settlement.otherwise is not None


def _write_settled(
    tx: Tx,
    settlement: Settlement,
    tx_config: TxConfig,
    ids: Ids,
    new_state: str | None = None,
) -> None:
    """Write everything that follows from the job's new status."""
    job, now = settlement.job, to_text(settlement.at)
    _note_effects(tx, settlement)
    for start, end in edges(JobStatus.RUNNING, settlement.path):
        log_transition(tx, job, start, end, settlement.error, now)
    _post_notice(tx, settlement)
    _log_attempt(tx, settlement, now)
    if new_state is not None:
        plugin_state.write_state(tx, settlement, new_state)
    if settlement.init_key is not None and settlement.status is JobStatus.SUCCEEDED:
        tx.run(
            "record_init",
            plugin=job.plugin,
            init_key=settlement.init_key,
            job_id=job.id,
            now=now,
        )
    if settlement.closed_until is not None:
        close_key(tx, job.plugin, job.id, settlement.closed_until)
    _write_consequences(tx, settlement, tx_config, ids)


def _begin_wait(tx: Tx, settlement: Settlement, tx_config: TxConfig, ids: Ids) -> Settlement | None:
    """Park the job, and start what notifies people about it."""
    if not parked_jobs.park_job(tx, settlement):
        return None
    close.write_intents(tx, settlement.intents, SpawnPoint(), tx_config, ids, settlement.at)
    return settlement


def _write_consequences(tx: Tx, settlement: Settlement, tx_config: TxConfig, ids: Ids) -> None:
    """Write the step's own context, the jobs that its events start, and what its end causes."""
    job, status = settlement.job, settlement.status
    context_id = spawn.insert_own_context(tx, job, settlement.context, settlement.at)
    if settlement.intents:
        point = SpawnPoint(job.scope_id, context_id)
        close.write_intents(tx, settlement.intents, point, tx_config, ids, settlement.at)
    spawn.post_unrouted(tx, job, settlement.unrouted, settlement.at)
    if status in ENDED:
        end = JobEnd(
            job,
            status,
            error=settlement.error,
            duration=settlement.duration,
            cancelled=settlement.cancelled,
            timed_out=settlement.path[0] is JobStatus.TIMED_OUT,
        )
        close.close_job(tx, end, tx_config, ids, settlement.at)
    elif job.scope_id is not None and job.pipeline in tx_config.run_limits:
        close.check_displaced(tx, job.scope_id, tx_config, ids, settlement.at)


def attempt_status(settlement: Settlement) -> JobStatus:
    """The attempt's own status; for the last attempt it is the job's."""
    path = settlement.path
    is_retried = path[-1] is JobStatus.QUEUED and len(path) > 1
    return path[0] if is_retried else path[-1]


def _job_values(settlement: Settlement) -> dict[str, object]:
    """The values of the update that moves the job to its new status."""
    job, status = settlement.job, settlement.status
    queued = status is JobStatus.QUEUED
    return {
        "id": job.id,
        "attempt": job.attempt,
        "owner": job.owner,
        "status": status.value,
        "next_attempt": job.attempt + queued,
        "uncounted": int(not settlement.counted),
        "completed_at": None if queued else to_text(settlement.at),
        "retry_at": None if settlement.retry_at is None else to_text(settlement.retry_at),
        "error": settlement.error,
    }


def _note_effects(tx: Tx, settlement: Settlement) -> None:
    if settlement.status is JobStatus.QUEUED:
        if settlement.retry_at is None:
            tx.effects.ready += 1
        else:
            tx.effects.add_retry(settlement.retry_at)


def _log_attempt(tx: Tx, settlement: Settlement, now: str) -> None:
    job = settlement.job
    log_attempt(
        tx,
        job,
        job.attempt,
        attempt_status(settlement),
        now,
        error=settlement.error,
        started_at=None if job.started_at is None else to_text(job.started_at),
        duration=settlement.duration,
        result=settlement.result,
        stdout=settlement.stdout,
        stderr=settlement.stderr,
        logs=settlement.logs,
        boot=job.owner,
    )


def _post_notice(tx: Tx, settlement: Settlement) -> None:
    job, status = settlement.job, settlement.status
    notices.post_job(
        tx,
        job,
        "job.retrying" if status is JobStatus.QUEUED else f"job.{status}",
        settlement.at,
        attempt=job.attempt,
        status=status.value,
        error=settlement.error,
        duration_ms=round(settlement.duration * 1000, 3),
        next_retry_at=None if settlement.retry_at is None else to_text(settlement.retry_at),
    )
