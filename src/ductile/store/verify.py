"""Whether a ledger keeps what it promises: its pages, its schema, and every row. Reads only.

Rows are walked in windows, each one snapshot and soon over: a ledger that is being written
can be checked, and no window keeps the WAL from being reset. SQL fetches what a row is to be
judged by, `promises` judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache
from itertools import chain
from typing import Any

import apsw

from ductile.errors import LedgerError
from ductile.record import dataclass
from ductile.store import invariants
from ductile.store.engines.api import Ledger, Row, Tx
from ductile.store.engines.migrate import History, compare_history, load_migrations
from ductile.store.engines.queries import load_queries

WINDOW = 500
LARGE_ROWS = 25
"""A window over rows of up to a MiB."""
NEWEST = 5_000
"""How many of the newest rows of a table a quick check looks at."""
QUICK_SECONDS = 5.0
"""How long a quick check looks at pages."""
TOLD = 20
"""Breaches of one promise that are told in full; the others are counted."""

Found = Iterator[tuple[str, str]]
"""What breaks a promise, and how."""
Alive = Callable[[str], bool]
"""Whether a gateway holds this boot id now."""
Tell = Callable[[str, int], None]
"""Hears of the progress through a table, or through the pages; ends the check by raising."""


@dataclass(frozen=True, slots=True)
class Breach:
    promise: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.subject} {self.detail}"


@dataclass(slots=True)
class Report:
    """What was looked at, and what was found to be wrong."""

    engine: str
    quick: bool
    rows: dict[str, int] = field(default_factory=dict)
    """How many rows of each table were judged."""
    breaches: list[Breach] = field(default_factory=list)
    more: int = 0
    """Breaches beyond those told."""
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.breaches

    def breaks(self, *promises: str) -> bool:
        return any(breach.promise in promises for breach in self.breaches)

    def add(self, promise: str, found: Found) -> None:
        told = sum(breach.promise == promise for breach in self.breaches)
        for subject, detail in found:
            if told < TOLD:
                self.breaches.append(Breach(promise, subject, detail))
                told += 1
            else:
                self.more += 1


def verify(
    ledger: Ledger,
    *,
    quick: bool = False,
    alive: Alive | None = None,
    tell: Tell = lambda _table, _rows: None,
) -> Report:
    """Judge everything or, where `quick`, the newest rows and as many pages as time allows.

    Without `alive` nobody runs: what was running when the ledger was left waits to be
    recovered, and is noted.
    """
    report = Report(ledger.engine, quick)
    damage, whole = ledger.check_integrity(
        QUICK_SECONDS if quick else None, lambda: tell("pages", 0)
    )
    for promise, subject, detail in damage:
        report.add(promise, iter([(subject, detail)]))
    if not whole:
        report.notes.append("not all pages were checked: that takes longer than a quick check may")
    if report.breaks("pages"):
        return report
    history = compare_history(ledger.read(applied_migrations), ledger.engine)
    _verify_schema(ledger, report, history)
    if not report.breaks("schema") and not _is_behind(report, history):
        _verify_owners(ledger, report, alive)
        for walk in WALKS:
            _walk(ledger, report, walk, tell)
        if quick:
            _verify_open_scopes(ledger, report)
    return report


def applied_migrations(tx: Tx) -> dict[int, str]:
    """Number to checksum; `LedgerError` where this is no ledger of ours."""
    try:
        applied = {int(number): str(checksum) for number, checksum in tx.all("applied_migrations")}
    except Exception as error:
        raise LedgerError(f"this is no ledger of ductile: {error}") from error
    if not applied:
        raise LedgerError("this is no ledger of ductile: no migration was ever applied")
    return applied


def _verify_schema(ledger: Ledger, report: Report, history: History) -> None:
    if history.foreign:
        # What such a migration makes, nobody here can say.
        report.add("schema", ((f"migration {number:04}", how) for number, how in history.foreign))
        return
    found = {tuple(row) for row in ledger.read(lambda tx: tx.all("schema_objects"))}
    missing = _expected(frozenset(migration.number for migration in history.applied)) - found
    report.add("schema", ((_named(entry), "is missing") for entry in sorted(missing)))


@cache
def _expected(applied: frozenset[int]) -> frozenset[Row]:
    """Tables with their columns, indexes and triggers, as these migrations make them."""
    connection = apsw.Connection(":memory:")
    for migration in load_migrations("sqlite"):
        if migration.number in applied:
            for statement in migration.statements:
                connection.execute(statement)
    rows = connection.execute(load_queries("sqlite")["schema_objects"]).fetchall()
    connection.close()
    return frozenset(tuple(row) for row in rows)


def _named(entry: Row) -> str:
    kind, name, column = entry
    return f"{kind} {name}.{column}" if column else f"{kind} {name}"


def _is_behind(report: Report, history: History) -> bool:
    """Whether the next start has migrations to apply; rows are judged by the newest schema."""
    if history.pending:
        report.notes.append(
            f"the schema is of migration {history.applied[-1].number:04} and the next start brings "
            f"it to {history.pending[-1].number:04}; its rows can be checked after that"
        )
    return bool(history.pending)


def _verify_owners(ledger: Ledger, report: Report, alive: Alive | None) -> None:
    counts = ledger.read(_running)
    if alive is None:
        if counts:
            left = sum(counts.values())
            report.notes.append(f"{left} running when it was left, to be recovered by a start")
        return
    dead = [owner for owner in counts if owner is not None and not alive(owner)]
    # What ended between the two looks was alive when it was seen to own something.
    still = ledger.read(_running) if dead else {}
    report.add(
        "owners",
        (
            (f"boot {owner}", f"is dead, and {still[owner]} of its jobs are running")
            for owner in dead
            if owner in still
        ),
    )


def _running(tx: Tx) -> dict[str | None, int]:
    return dict(tx.all("running_by_owner"))


def _verify_open_scopes(ledger: Ledger, report: Report) -> None:
    """Those that a pipeline still waits for matter, however old they are."""
    idle = ledger.read(lambda tx: tx.all("open_scopes", limit=TOLD))
    known = {breach.subject for breach in report.breaches}
    report.add("scopes", ((id, invariants.IDLE_SCOPE) for (id,) in idle if id not in known))


Look = Callable[[Tx, Any, int], tuple[list[Row], Found]]
"""The rows of one window, their key first, and what is wrong with them."""


@dataclass(frozen=True, slots=True)
class Walk:
    """A table from its first row, or from its newest, to its last."""

    promise: str
    table: str
    first: int | str
    """Sorts before every key."""
    look: Look
    newest: str | None = None
    """The query for the key that the newest rows come after; None is for a small table."""
    window: int = WINDOW


def _walk(ledger: Ledger, report: Report, walk: Walk, tell: Tell) -> None:
    after: Any = walk.first
    if report.quick and walk.newest is not None:
        query = walk.newest
        after = ledger.read(lambda tx: tx.all(query, newest=NEWEST))[0][0]
    rows = 0
    while True:
        last, count, found = ledger.read(_window(walk, after))
        report.add(walk.promise, iter(found))
        rows += count
        tell(walk.table, rows)
        if count < walk.window:
            break
        after = last
    report.rows[walk.table] = rows


def _window(walk: Walk, after: Any) -> Callable[[Tx], tuple[Any, int, list[tuple[str, str]]]]:
    def work(tx: Tx) -> tuple[Any, int, list[tuple[str, str]]]:
        rows, found = walk.look(tx, after, walk.window)
        return (rows[-1][0] if rows else after), len(rows), list(found)

    return work


def _jobs(tx: Tx, after: Any, limit: int) -> tuple[list[Row], Found]:
    rows = tx.dicts("verify_jobs", after=after, limit=limit)
    upto = rows[-1]["seq"] if rows else after
    changes: dict[str, list[tuple[str, str]]] = {}
    for job_id, start, end in tx.all("verify_transitions", after=after, upto=upto):
        changes.setdefault(job_id, []).append((start, end))
    kept = invariants.Kept(*tx.all("kept_since")[0])
    found = (
        (row["id"], detail)
        for row in rows
        for detail in invariants.job(row, changes.get(row["id"], []), kept)
    )
    return [(row["seq"],) for row in rows], found


def _rows(query: str, judge: Callable[..., Iterator[str]], subject: int = 0) -> Look:
    """Rows whose column `subject` is what they are called; they are judged by the others."""

    def look(tx: Tx, after: Any, limit: int) -> tuple[list[Row], Found]:
        rows = tx.all(query, after=after, limit=limit)
        judged = (
            ((str(row[subject]), detail) for detail in judge(*row[subject + 1 :])) for row in rows
        )
        return rows, chain.from_iterable(judged)

    return look


WALKS = (
    Walk("jobs", "job_queue", 0, _jobs, "newest_jobs_after"),
    Walk("logs", "job_log", 0, _rows("verify_logs", invariants.log, 1), "newest_logs_after"),
    Walk(
        "contexts",
        "event_context",
        "",
        _rows("verify_contexts", invariants.context),
        "newest_contexts_after",
        window=LARGE_ROWS,
    ),
    Walk("scopes", "scopes", "", _rows("verify_scopes", invariants.scope), "newest_scopes_after"),
    Walk(
        "deliveries",
        "webhook_deliveries",
        0,
        _rows("verify_webhook_deliveries", invariants.delivery),
        "newest_webhook_deliveries_after",
    ),
    Walk(
        "deliveries",
        "relay_deliveries",
        "",
        _rows("verify_relay_deliveries", invariants.delivery),
        "newest_relay_deliveries_after",
    ),
    Walk("states", "plugin_state", "", _rows("verify_states", invariants.state)),
)
