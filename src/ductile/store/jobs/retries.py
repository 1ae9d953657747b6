"""Jobs that wait for their retry: which are due, and times that another program wrote."""

from __future__ import annotations

from datetime import datetime, timedelta

from ductile.clock import moment_of, to_text
from ductile.core.jobs import retry
from ductile.store.engines.api import Tx

BATCH = 500
MAX_DELAY = timedelta(seconds=retry.LONGEST_DELAY)


def promote_due(tx: Tx, now: datetime) -> int:
    """Make due jobs ready, at most `BATCH`; returns how many."""
    horizon = to_text(now + MAX_DELAY)
    count = tx.run("promote_due_retries", now=to_text(now), horizon=horizon, limit=BATCH)
    tx.effects.ready += count
    return count


def next_retry_at(tx: Tx, now: datetime) -> datetime | None:
    """When `promote_due` has work next; not after `now` if it has some already.

    None if no job waits for a retry, or the next time cannot be read.
    """
    row = tx.one("next_retry")
    if row is None or row[0] is None:
        return None
    earliest, latest = row
    if earliest <= to_text(now) or latest > to_text(now + MAX_DELAY):
        return now
    return moment_of(earliest)


def has_foreign_time(tx: Tx) -> bool:
    """Whether a retry time is not in the ledger's format."""
    return tx.one("has_foreign_retry") is not None


def normalize_times(tx: Tx) -> dict[str, str | None]:
    """Rewrite such times in the ledger's format, so that their text order is time order.

    Returns the changed jobs, at most `BATCH`, and when each is due. None means at once, because
    the time could not be read.
    """
    changed: dict[str, str | None] = {}
    for id, text in tx.all("foreign_retries", limit=BATCH):
        moment = moment_of(text)
        changed[id] = None if moment is None else to_text(moment)
        tx.run("set_retry", id=id, retry_at=changed[id])
        tx.effects.ready += moment is None
    return changed
