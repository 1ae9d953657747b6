"""Deleting rows that are past their retention, in small transactions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.store.engines.api import Tx
from ductile.store.jobs import idempotency

BATCH = 200
DAY = 86400.0
WEEK = 7 * DAY
AUDIT = 366 * DAY
"""Longer than the trigger of the table keeps rows."""
WINDOW = 20 * BATCH
"""Maximum number of the oldest rows of a log that are looked at for a batch."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds for which each kind of row is kept; None means permanently."""

    jobs: float
    logs: float
    transitions: float
    breaker_transitions: float
    facts: float | None
    dedupe_ttl: float
    replays: float = DAY
    """In which a peer's signed request could be replayed."""


def prune_batches(retention: Retention, now: datetime) -> list[Callable[[Tx], int]]:
    """One transaction per kind of row; each returns how many rows it deleted, at most `BATCH`."""

    def cutoff(seconds: float) -> str:
        return to_text(now - timedelta(seconds=seconds))

    def prune(query: str, seconds: float, **values: object) -> Callable[[Tx], int]:
        before = cutoff(seconds)
        return lambda tx: tx.run(query, before=before, limit=BATCH, **values)

    def prune_jobs(tx: Tx) -> int:
        before = cutoff(retention.jobs)
        _normalize_ends(tx, before, now)
        kept_for = max(retention.dedupe_ttl, retention.jobs)
        times = {"before": before, "dedupe_before": cutoff(kept_for), "now": to_text(now)}
        return tx.run("prune_jobs", limit=BATCH, **times)

    def prune_facts(tx: Tx) -> int:
        """Facts are protected against deletion, unless this transaction permits it."""
        chosen = {"before": cutoff(retention.facts or 0.0), "limit": BATCH}
        if not tx.all("prunable_facts", **{**chosen, "limit": 1}):
            return 0
        tx.run("allow_fact_pruning", before=chosen["before"])
        deleted = tx.run("prune_facts", **chosen)
        tx.run("end_fact_pruning")
        return deleted

    work: list[Callable[[Tx], int]] = [prune_jobs]
    if retention.facts is not None:
        work.append(prune_facts)
    work += [
        prune(query, seconds, window=WINDOW) for query, seconds in _log_queries(retention).items()
    ]
    work += [prune(query, seconds) for query, seconds in _other_queries(retention).items()]
    return work


def _log_queries(retention: Retention) -> dict[str, float]:
    """Query to seconds, for the tables of which only the oldest rows are looked at."""
    return {
        "prune_logs": retention.logs,
        "prune_transitions": retention.transitions,
        "prune_notices": retention.logs,
        "prune_dedupe_drops": retention.jobs,
        "prune_audit_log": AUDIT,
        "prune_deliveries": retention.jobs,
        "prune_dead_deliveries": retention.jobs,
    }


def _other_queries(retention: Retention) -> dict[str, float]:
    """Query to seconds, for the other tables. Scopes precede the contexts that they refer to."""
    return {
        "prune_breaker_transitions": retention.breaker_transitions,
        "prune_slots": retention.jobs,
        "prune_waits": retention.jobs,
        "prune_scopes": retention.jobs,
        "prune_contexts": retention.jobs,
        "prune_boots": retention.jobs,
        "prune_snapshots": retention.jobs,
        "prune_receipts": retention.jobs,
        "prune_relays": retention.jobs,
        "prune_dead_relays": retention.jobs,
        # An operator may send an event again long after its sender has given up.
        "prune_relay_receipts": max(retention.jobs, WEEK),
        "prune_relay_signatures": retention.replays,
        "prune_webhook_signatures": retention.replays,
        "prune_tokens": retention.jobs,
        "prune_notifications": retention.jobs,
        "prune_alerts": retention.jobs,
        "prune_node_requests": DAY,
        "prune_idempotency_keys": idempotency.RETENTION.total_seconds(),
    }


def _normalize_ends(tx: Tx, before: str, now: datetime) -> None:
    """Rewrite end times that scripts wrote in another format, before their jobs are pruned.

    The retention of a job whose end cannot be read starts now.
    """
    for id, text in tx.all("foreign_end_times", before=before, window=WINDOW, now=to_text(now)):
        tx.run("set_end", id=id, completed_at=to_text(moment_of(text) or now))
