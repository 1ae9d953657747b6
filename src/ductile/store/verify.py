"""Verifying a ledger: its pages, its schema, and the invariants of every row. Read-only.

Rows are read in windows. Each window is one short snapshot, so that a ledger can be verified while
it is written, and the WAL can be reset in between. SQL fetches what a row is checked by, and
`invariants` checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from functools import cache
from itertools import chain
from typing import Any

import apsw

from ductile._fast_dataclass import dataclass
from ductile.errors import LedgerError
from ductile.store import invariants
from ductile.store.engines.api import Ledger, Row, Tx
from ductile.store.engines.migrate import History, compare_history, load_migrations
from ductile.store.engines.queries import load_queries

WINDOW = 500
LARGE_ROW_WINDOW = 25
"""A window of rows that may have up to a MiB each."""
NEWEST = 5_000
"""Number of the newest rows of a table that a quick check reads."""
QUICK_SECONDS = 5.0
"""Seconds for which a quick check reads pages."""
MAX_LISTED = 20
"""Maximum number of violations per invariant that are listed; the others are counted."""

Findings = Iterator[tuple[str, str]]
"""The subject of each violation, and its description."""
IsAlive = Callable[[str], bool]
"""Whether a gateway holds this boot id now."""
VerifyProgress = Callable[[str, int], None]
"""Receives a table, or `pages`, and the rows read so far; ends the check by raising."""


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: str
    subject: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.subject} {self.detail}"


@dataclass(slots=True)
class VerifyReport:
    """What was checked, and the violations that were found."""

    engine: str
    quick: bool
    rows: dict[str, int] = field(default_factory=dict)
    """Number of checked rows per table."""
    violations: list[Violation] = field(default_factory=list)
    more: int = 0
    """Number of violations that are not listed."""
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.violations

    def violates(self, *invariants: str) -> bool:
        return any(violation.invariant in invariants for violation in self.violations)

    def add(self, invariant: str, found: Findings) -> None:
        listed = sum(violation.invariant == invariant for violation in self.violations)
        for subject, detail in found:
            if listed < MAX_LISTED:
                self.violations.append(Violation(invariant, subject, detail))
                listed += 1
            else:
                self.more += 1

    def to_json(self) -> dict[str, Any]:
        """The report with the documented field names: `breaches`, each with its `promise`."""
        breaches = [
            {
                "promise": violation.invariant,
                "subject": violation.subject,
                "detail": violation.detail,
            }
            for violation in self.violations
        ]
        return {
            "ok": self.ok,
            "engine": self.engine,
            "quick": self.quick,
            "rows": self.rows,
            "breaches": breaches,
            "more": self.more,
            "notes": self.notes,
        }


def verify(
    ledger: Ledger,
    *,
    quick: bool = False,
    is_alive: IsAlive | None = None,
    progress: VerifyProgress = lambda _table, _rows: None,
) -> VerifyReport:
    """Check everything or, with `quick`, the newest rows and as many pages as time allows.

    Without `is_alive` no gateway runs: running jobs are left to the recovery of the next start,
    and mentioned in a note.
    """
    report = VerifyReport(ledger.engine, quick)
    seconds = QUICK_SECONDS if quick else None
    progress("pages", 0)
    damage, complete = ledger.check_integrity(seconds, lambda: progress("pages", 0))
    for invariant, subject, detail in damage:
        report.add(invariant, iter([(subject, detail)]))
    if not complete:
        report.notes.append("not all pages were checked, because a quick check has limited time")
    if report.violates("pages"):
        return report
    history = compare_history(ledger.read(applied_migrations), ledger.engine)
    _verify_schema(ledger, report, history)
    if not report.violates("schema") and not _is_behind(report, history):
        _verify_owners(ledger, report, is_alive)
        for table in TABLES:
            _verify_table(ledger, report, table, progress)
        if quick:
            _verify_open_scopes(ledger, report)
    return report


def applied_migrations(tx: Tx) -> dict[int, str]:
    """Number to checksum; `LedgerError` if this is not a ductile ledger."""
    try:
        applied = {int(number): str(checksum) for number, checksum in tx.all("applied_migrations")}
    except Exception as error:
        raise LedgerError(f"not a ductile ledger: {error}") from error
    if not applied:
        raise LedgerError("not a ductile ledger: no migration was applied to it")
    return applied


def _verify_schema(ledger: Ledger, report: VerifyReport, history: History) -> None:
    if history.foreign:
        # This version does not know what such a migration creates.
        report.add("schema", ((f"migration {number:04}", how) for number, how in history.foreign))
        return
    found = {tuple(row) for row in ledger.read(lambda tx: tx.all("schema_objects"))}
    missing = (
        _expected_objects(frozenset(migration.number for migration in history.applied)) - found
    )
    report.add("schema", ((_object_name(entry), "is missing") for entry in sorted(missing)))


@cache
def _expected_objects(applied: frozenset[int]) -> frozenset[Row]:
    """The tables with their columns, the indexes and the triggers that these migrations create."""
    connection = apsw.Connection(":memory:")
    for migration in load_migrations("sqlite"):
        if migration.number in applied:
            for statement in migration.statements:
                connection.execute(statement)
    rows = connection.execute(load_queries("sqlite")["schema_objects"]).fetchall()
    connection.close()
    return frozenset(tuple(row) for row in rows)


def _object_name(entry: Row) -> str:
    kind, name, column = entry
    return f"{kind} {name}.{column}" if column else f"{kind} {name}"


def _is_behind(report: VerifyReport, history: History) -> bool:
    """Whether migrations are pending: rows are checked by the newest schema only."""
    if history.pending:
        report.notes.append(
            f"the schema is at migration {history.applied[-1].number:04}, and the next start "
            f"migrates it to {history.pending[-1].number:04}; its rows can be checked after that"
        )
    return bool(history.pending)


def _verify_owners(ledger: Ledger, report: VerifyReport, is_alive: IsAlive | None) -> None:
    counts = ledger.read(_count_running)
    if is_alive is None:
        if counts:
            left = sum(counts.values())
            report.notes.append(f"running jobs: {left}; the next start recovers them")
        return
    dead = [owner for owner in counts if owner is not None and not is_alive(owner)]
    # A boot that has ended between the two reads has no running jobs any more.
    still = ledger.read(_count_running) if dead else {}
    report.add(
        "owners",
        (
            (f"boot {owner}", f"is dead, and {still[owner]} of its jobs are running")
            for owner in dead
            if owner in still
        ),
    )


def _count_running(tx: Tx) -> dict[str | None, int]:
    return dict(tx.all("running_by_owner"))


def _verify_open_scopes(ledger: Ledger, report: VerifyReport) -> None:
    """A quick check reads all open scopes, however old: a pipeline may wait for them for ever."""
    idle = ledger.read(lambda tx: tx.all("open_scopes", limit=MAX_LISTED))
    known = {violation.subject for violation in report.violations}
    report.add("scopes", ((id, invariants.IDLE_SCOPE) for (id,) in idle if id not in known))


CheckWindow = Callable[[Tx, Any, int], tuple[list[Row], Findings]]
"""The rows of one window, their key first, and what is wrong with them."""


@dataclass(frozen=True, slots=True)
class CheckedTable:
    """How a table is read and checked."""

    invariant: str
    name: str
    first: int | str
    """Sorts before every key."""
    check: CheckWindow
    newest: str | None = None
    """The query for the key before the newest rows; None for a small table."""
    window: int = WINDOW


def _verify_table(
    ledger: Ledger, report: VerifyReport, table: CheckedTable, progress: VerifyProgress
) -> None:
    after: Any = table.first
    if report.quick and table.newest is not None:
        query = table.newest
        after = ledger.read(lambda tx: tx.all(query, newest=NEWEST))[0][0]
    rows = 0
    while True:
        last, count, found = ledger.read(_check_window(table, after))
        report.add(table.invariant, iter(found))
        rows += count
        progress(table.name, rows)
        if count < table.window:
            break
        after = last
    report.rows[table.name] = rows


def _check_window(
    table: CheckedTable, after: Any
) -> Callable[[Tx], tuple[Any, int, list[tuple[str, str]]]]:
    def work(tx: Tx) -> tuple[Any, int, list[tuple[str, str]]]:
        rows, found = table.check(tx, after, table.window)
        return (rows[-1][0] if rows else after), len(rows), list(found)

    return work


def _check_jobs(tx: Tx, after: Any, limit: int) -> tuple[list[Row], Findings]:
    rows = tx.dicts("verify_jobs", after=after, limit=limit)
    upto = rows[-1]["seq"] if rows else after
    transitions: dict[str, list[tuple[str, str]]] = {}
    for job_id, start, end in tx.all("verify_transitions", after=after, upto=upto):
        transitions.setdefault(job_id, []).append((start, end))
    since = invariants.RetainedSince(*tx.all("retained_since")[0])
    found = (
        (row["id"], detail)
        for row in rows
        for detail in invariants.check_job(row, transitions.get(row["id"], []), since)
    )
    return [(row["seq"],) for row in rows], found


def _check_rows(query: str, check: Callable[..., Iterator[str]], subject: int = 0) -> CheckWindow:
    """Check rows by the columns after column `subject`, which is what they are called."""

    def check_window(tx: Tx, after: Any, limit: int) -> tuple[list[Row], Findings]:
        rows = tx.all(query, after=after, limit=limit)
        found = (
            ((str(row[subject]), detail) for detail in check(*row[subject + 1 :])) for row in rows
        )
        return rows, chain.from_iterable(found)

    return check_window


TABLES = (
    CheckedTable("jobs", "job_queue", 0, _check_jobs, "newest_jobs_after"),
    CheckedTable(
        "logs",
        "job_log",
        0,
        _check_rows("verify_logs", invariants.check_log, 1),
        "newest_logs_after",
    ),
    CheckedTable(
        "contexts",
        "event_context",
        "",
        _check_rows("verify_contexts", invariants.check_context),
        "newest_contexts_after",
        window=LARGE_ROW_WINDOW,
    ),
    CheckedTable(
        "scopes",
        "scopes",
        "",
        _check_rows("verify_scopes", invariants.check_scope),
        "newest_scopes_after",
    ),
    CheckedTable(
        "deliveries",
        "webhook_deliveries",
        0,
        _check_rows("verify_webhook_deliveries", invariants.check_delivery),
        "newest_webhook_deliveries_after",
    ),
    CheckedTable(
        "deliveries",
        "relay_deliveries",
        "",
        _check_rows("verify_relay_deliveries", invariants.check_delivery),
        "newest_relay_deliveries_after",
    ),
    CheckedTable(
        "states", "plugin_state", "", _check_rows("verify_states", invariants.check_state)
    ),
)
