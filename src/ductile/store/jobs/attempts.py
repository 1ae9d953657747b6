"""Attempts as operators look through them: filtered, page by page.

However many rows there are, however large and however few of them match: a transaction looks at
a bounded number, and whoever wants more goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from ductile.clock import moment_of, to_text
from ductile.core.jobs.limits import PAGE_BYTES, document, fitting
from ductile.model import MIB
from ductile.record import dataclass
from ductile.store.engines.api import Ledger, Tx

LOOKED_AT = 1000
LOOKED_AT_BYTES = 64 * MIB
"""Of one transaction: rows, and what they hold."""
BEYOND_ALL = 2**62
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which attempts; each filter counts only where it is given."""

    plugin: str | None = None
    job_id: str | None = None
    command: str | None = None
    status: str | None = None
    submitted_by: str | None = None
    since: datetime | None = None
    """Ended then or later; `until`, then or before."""
    until: datetime | None = None
    text: str | None = None
    """Stands in the error, in stderr or in the response, in whatever case (of A to Z)."""
    results: bool = False
    """With their responses."""

    @property
    def filters(self) -> dict[str, str | None]:
        """Those that a row is looked at for."""
        return {
            "job_id": self.job_id,
            "command": self.command,
            "status": self.status,
            "submitted_by": self.submitted_by,
            "since": None if self.since is None else to_text(self.since),
            "until": None if self.until is None else to_text(self.until),
            "text": None if self.text is None else self.text.translate(_LOWER),
        }


@dataclass(frozen=True, slots=True)
class Page:
    rows: list[dict[str, Any]]
    behind: int | None
    """Where the next one goes on; None after the last."""


@dataclass(frozen=True, slots=True)
class _Look:
    """What one transaction came to: rows that match, by `seq`, with their sizes."""

    found: list[tuple[int, int]]
    behind: int | None


def page(
    ledger: Ledger, wanted: Wanted, *, before: int | None, limit: int, enough: Callable[[], bool]
) -> Page:
    """The newest first, of those before `before`.

    It has fewer than `limit` rows at the end, where they are large, and where `enough` said
    that they have been looked for long enough.
    """
    found: list[tuple[int, int]] = []
    behind, full = before or BEYOND_ALL, False
    while not full:
        looked = ledger.read(partial(_look, wanted=wanted, before=behind, limit=limit - len(found)))
        found += looked.found
        count = fitting([size for _, size in found], PAGE_BYTES)
        full = count == limit or count < len(found)
        if looked.behind is None or enough():
            break
        behind = looked.behind
    seqs = [seq for seq, _ in found[:count]]
    rows = ledger.read(partial(_rows, seqs=seqs, results=wanted.results))
    return Page(rows, seqs[-1] if full else looked.behind)


def _look(tx: Tx, wanted: Wanted, before: int, limit: int) -> _Look:
    filters = wanted.filters
    filtered = any(value is not None for value in filters.values())
    most = LOOKED_AT if filtered else limit
    ahead = _ahead(tx, wanted, before, most)
    near = ahead[: fitting([result + rest for _, result, rest in ahead], LOOKED_AT_BYTES)]
    sizes = {seq: rest + (result if wanted.results else 0) for seq, result, rest in near}
    seqs = _matching(tx, wanted, list(sizes)) if filtered else list(sizes)
    ended = len(near) == len(ahead) < most
    return _Look([(seq, sizes[seq]) for seq in seqs[:limit]], None if ended else near[-1][0])


def _ahead(tx: Tx, wanted: Wanted, before: int, limit: int) -> list[tuple[int, int, int]]:
    """The next rows, as an index finds them: each with the size of its response and the rest."""
    if wanted.job_id is not None:
        rows = tx.all("attempts_of_job", job_id=wanted.job_id, before=before, limit=limit)
    elif wanted.plugin is not None:
        rows = tx.all("attempts_of_plugin", plugin=wanted.plugin, before=before, limit=limit)
    else:
        rows = tx.all("attempts", before=before, limit=limit)
    return [(seq, result, rest) for seq, result, rest in rows]


def _matching(tx: Tx, wanted: Wanted, seqs: Sequence[int]) -> list[int]:
    rows = tx.all("matching_attempts", ids=_array(seqs), plugin=wanted.plugin, **wanted.filters)
    return [seq for seq, ended in rows if _within(wanted, ended)]


def _within(wanted: Wanted, ended: str) -> bool:
    """Whether it ended between the two, however the row writes it."""
    if wanted.since is None and wanted.until is None:
        return True
    moment = moment_of(ended)
    if moment is None:
        return False
    return (wanted.since or moment) <= moment <= (wanted.until or moment)


def _rows(tx: Tx, seqs: Sequence[int], *, results: bool) -> list[dict[str, Any]]:
    rows = tx.dicts("attempts_by_seq", ids=_array(seqs), results=results)
    for row in rows:
        for name in ("result", "logs"):
            row[name] = None if row[name] is None else document(row[name])
    return rows


def _array(seqs: Sequence[int]) -> str:
    # As texts: those are what both engines make a table of.
    return orjson.dumps([str(seq) for seq in seqs]).decode()
