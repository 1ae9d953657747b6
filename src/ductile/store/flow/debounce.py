"""The waiting job of a debounced series; a newer event replaces it."""

from __future__ import annotations

from datetime import datetime

from ductile.clock import moment_of, to_text
from ductile.core.flow.debounce import Series
from ductile.store.engines.api import Tx


def enter_series(tx: Tx, job_id: str, series: Series, now: datetime) -> str | None:
    """Let a new job wait as the last of its series.

    Returns the queued job that it supersedes, which the caller has to end in this transaction.
    """
    # Two events of a series are stored one after the other, on both engines. The unique index
    # refuses a second waiting job even without the lock.
    tx.hold("debounce", series.name, wait=True)
    older = tx.one("leave_series", series=series.name)
    since = now
    if older is not None:
        # A clock that was set back must not lengthen the series.
        since = min(moment_of(older[1]) or now, now)
    tx.run(
        "enter_series",
        id=job_id,
        series=series.name,
        since=to_text(since),
        due=to_text(series.due_at(since, now)),
    )
    return None if older is None else str(older[0])
