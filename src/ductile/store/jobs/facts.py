"""What plugins have observed, as operators look through it: page by page."""

from __future__ import annotations

from typing import Any

from ductile.core.jobs.limits import fitting
from ductile.store.engines.api import Tx

BEYOND_ALL = 2**62


def page(
    tx: Tx, plugin: str, *, fact_type: str | None, before: int | None, limit: int, room: int
) -> tuple[list[dict[str, Any]], int | None]:
    """The newest first, of no more bytes than `room`, and where the next page goes on."""
    given = {"plugin": plugin, "fact_type": fact_type, "before": before or BEYOND_ALL}
    kind = "" if fact_type is None else "_type"
    sizes = [size for (size,) in tx.all(f"fact_sizes_of{kind}", **given, limit=limit)]
    count = fitting(sizes, room)
    rows = tx.dicts(f"facts_of{kind}", **given, limit=count) if count else []
    return rows, rows[-1]["seq"] if rows and (count == limit or count < len(sizes)) else None
