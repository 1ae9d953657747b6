"""Attempts in the job log, filtered, page by page.

A transaction looks at a limited number of rows and bytes, however large the log is and however
few rows match; the next transaction continues where it ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of, to_text
from ductile.core.jobs.limits import PAGE_BYTES, document, fitting
from ductile.model import MIB
from ductile.store.engines.api import Ledger, Tx

SCAN_ROWS = 1000
SCAN_BYTES = 64 * MIB
"""Maximum number of rows, and of their bytes, that one transaction looks at."""
MAX_SEQ = 2**62
_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


@dataclass(frozen=True, slots=True)
class AttemptFilter:
    """Which attempts to list; a filter that is None matches everything."""

    plugin: str | None = None
    job_id: str | None = None
    command: str | None = None
    status: str | None = None
    submitted_by: str | None = None
    since: datetime | None = None
    """Ended at this time or later."""
    until: datetime | None = None
    """Ended at this time or earlier."""
    text: str | None = None
    """Occurs in the error, in stderr or in the response; A to Z match in either case."""
    results: bool = False
    """Include the responses."""

    @property
    def filters(self) -> dict[str, str | None]:
        """The filters that are applied to each row."""
        return {
            "job_id": self.job_id,
            "command": self.command,
            "status": self.status,
            "submitted_by": self.submitted_by,
            "since": None if self.since is None else to_text(self.since),
            "until": None if self.until is None else to_text(self.until),
            "text": None if self.text is None else self.text.translate(_ASCII_LOWER),
        }


@dataclass(frozen=True, slots=True)
class AttemptPage:
    rows: list[dict[str, Any]]
    next_before: int | None
    """Where the next page continues; None after the last page."""


@dataclass(frozen=True, slots=True)
class _Scan:
    """The result of one transaction: the `seq` and size of each match, and where it ended."""

    found: list[tuple[int, int]]
    next_before: int | None


def list_attempts(
    ledger: Ledger,
    wanted: AttemptFilter,
    *,
    before: int | None,
    limit: int,
    is_out_of_time: Callable[[], bool],
) -> AttemptPage:
    """A page of the newest attempts before `before`.

    It has fewer than `limit` rows at the end of the log, if the rows are large, and if
    `is_out_of_time` ended the search.
    """
    found: list[tuple[int, int]] = []
    next_before, full = before or MAX_SEQ, False
    while not full:
        # One more than the page has, to know whether another page follows.
        room = limit + 1 - len(found)
        scan = ledger.read(partial(_scan_rows, wanted=wanted, before=next_before, limit=room))
        found += scan.found
        count = fitting([size for _, size in found[:limit]], PAGE_BYTES)
        full = count < len(found)
        if scan.next_before is None or is_out_of_time():
            break
        next_before = scan.next_before
    seqs = [seq for seq, _ in found[:count]]
    rows = ledger.read(partial(_load_rows, seqs=seqs, results=wanted.results))
    return AttemptPage(rows, seqs[-1] if full else scan.next_before)


def _scan_rows(tx: Tx, wanted: AttemptFilter, before: int, limit: int) -> _Scan:
    is_filtered = any(value is not None for value in wanted.filters.values())
    max_rows = SCAN_ROWS if is_filtered else limit
    candidates = _list_candidates(tx, wanted, before, max_rows)
    count = fitting([result + rest for _, result, rest in candidates], SCAN_BYTES)
    scanned = candidates[:count]
    sizes = {seq: rest + (result if wanted.results else 0) for seq, result, rest in scanned}
    seqs = _match_rows(tx, wanted, list(sizes)) if is_filtered else list(sizes)
    is_last = len(scanned) == len(candidates) < max_rows
    found = [(seq, sizes[seq]) for seq in seqs[:limit]]
    return _Scan(found, None if is_last else scanned[-1][0])


def _list_candidates(
    tx: Tx, wanted: AttemptFilter, before: int, limit: int
) -> list[tuple[int, int, int]]:
    """The next rows by index: `seq`, size of the response, size of the rest."""
    if wanted.job_id is not None:
        rows = tx.all("attempts_of_job", job_id=wanted.job_id, before=before, limit=limit)
    elif wanted.plugin is not None:
        rows = tx.all("attempts_of_plugin", plugin=wanted.plugin, before=before, limit=limit)
    else:
        rows = tx.all("attempts", before=before, limit=limit)
    return [(seq, result, rest) for seq, result, rest in rows]


def _match_rows(tx: Tx, wanted: AttemptFilter, seqs: Sequence[int]) -> list[int]:
    ids = _encode_seqs(seqs)
    rows = tx.all("matching_attempts", ids=ids, plugin=wanted.plugin, **wanted.filters)
    return [seq for seq, ended in rows if _is_in_period(wanted, ended)]


def _is_in_period(wanted: AttemptFilter, ended: str) -> bool:
    """Whether it ended between `since` and `until`, in whatever format the row has its time."""
    if wanted.since is None and wanted.until is None:
        return True
    moment = moment_of(ended)
    if moment is None:
        return False
    return (wanted.since or moment) <= moment <= (wanted.until or moment)


def _load_rows(tx: Tx, seqs: Sequence[int], *, results: bool) -> list[dict[str, Any]]:
    rows = tx.dicts("attempts_by_seq", ids=_encode_seqs(seqs), results=results)
    for row in rows:
        for name in ("result", "logs"):
            row[name] = None if row[name] is None else document(row[name])
    return rows


def _encode_seqs(seqs: Sequence[int]) -> str:
    # As texts, because both engines turn an array of texts into a table.
    return orjson.dumps([str(seq) for seq in seqs]).decode()
