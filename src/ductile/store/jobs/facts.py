"""Facts that plugins have recorded, page by page."""

from __future__ import annotations

from typing import Any

from ductile.core.jobs.limits import fitting
from ductile.store.engines.api import Tx

MAX_SEQ = 2**62


def list_facts(
    tx: Tx, plugin: str, *, fact_type: str | None, before: int | None, limit: int, max_bytes: int
) -> tuple[list[dict[str, Any]], int | None]:
    """The newest facts, at most `max_bytes` of them, and where the next page continues."""
    values = {"plugin": plugin, "fact_type": fact_type, "before": before or MAX_SEQ}
    suffix = "" if fact_type is None else "_type"
    # One more than the page has, to know whether another page follows.
    sizes = [size for (size,) in tx.all(f"fact_sizes_of{suffix}", **values, limit=limit + 1)]
    count = fitting(sizes[:limit], max_bytes)
    rows = tx.dicts(f"facts_of{suffix}", **values, limit=count) if count else []
    return rows, rows[-1]["seq"] if rows and count < len(sizes) else None
