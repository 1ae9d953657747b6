"""Forgetting what is past its retention, a small batch a transaction."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from ductile.clock import moment_of, to_text
from ductile.record import dataclass
from ductile.store.engines.api import Tx
from ductile.store.jobs import idempotency

BATCH = 200
DAY = 86400.0
WEEK = 7 * DAY
WINDOW = 20 * BATCH
"""How many of the oldest rows of a log are looked at for a batch."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds that each kind of row is kept; None is for ever."""

    jobs: float
    logs: float
    transitions: float
    breaker_transitions: float
    facts: float | None
    dedupe_ttl: float
    replays: float = DAY
    """In which a signature of a peer could come again."""


def batches(retention: Retention, now: datetime) -> list[Callable[[Tx], int]]:
    """One transaction a kind of row; each says how many it deleted, at most `BATCH`."""

    def before(seconds: float) -> str:
        return to_text(now - timedelta(seconds=seconds))

    def prune(query: str, seconds: float, **more: object) -> Callable[[Tx], int]:
        cutoff = before(seconds)
        return lambda tx: tx.run(query, before=cutoff, limit=BATCH, **more)

    def prune_log(query: str, seconds: float) -> Callable[[Tx], int]:
        return prune(query, seconds, window=WINDOW)

    prune_jobs = prune(
        "prune_jobs",
        retention.jobs,
        dedupe_before=before(max(retention.dedupe_ttl, retention.jobs)),
        now=to_text(now),
    )

    def mend_and_prune_jobs(tx: Tx) -> int:
        _mend_ends(tx, before(retention.jobs), now)
        return prune_jobs(tx)

    work = [
        mend_and_prune_jobs,
        prune_log("prune_logs", retention.logs),
        prune_log("prune_transitions", retention.transitions),
        prune("prune_breaker_transitions", retention.breaker_transitions),
        prune_log("prune_notices", retention.logs),
        prune("prune_slots", retention.jobs),
        prune_log("prune_dedupe_drops", retention.jobs),
        prune("prune_scopes", retention.jobs),
        prune("prune_contexts", retention.jobs),
        prune("prune_boots", retention.jobs),
        prune("prune_snapshots", retention.jobs),
        prune("prune_receipts", retention.jobs),
        prune_log("prune_deliveries", retention.jobs),
        prune("prune_relays", retention.jobs),
        # An operator may send an event again long after its sender gave it up.
        prune("prune_relay_receipts", max(retention.jobs, WEEK)),
        prune("prune_relay_signatures", retention.replays),
        prune("prune_tokens", retention.jobs),
        prune("prune_idempotency_keys", idempotency.RETENTION.total_seconds()),
    ]
    if retention.facts is not None:
        work.append(prune("prune_facts", retention.facts))
    return work


def _mend_ends(tx: Tx, before: str, now: datetime) -> None:
    """Write the ends of what is about to be pruned in our form, where a script wrote them.

    What ended nobody can say when, counts from now on.
    """
    for id, text in tx.all("foreign_ends", before=before, window=WINDOW, now=to_text(now)):
        tx.run("set_end", id=id, completed_at=to_text(moment_of(text) or now))
