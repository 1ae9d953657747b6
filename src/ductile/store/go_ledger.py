"""The SQLite ledger of the earlier Go program: recognizing it, and importing its contents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import apsw
import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.jobs.limits import LONGEST_NAME, fits, size, too_deep
from ductile.errors import LedgerError, NotFound, Refused
from ductile.store.engines.api import Tx
from ductile.store.engines.migrate import HISTORY
from ductile.store.jobs.plugin_state import MAX_STATE

SHARED_TABLE = "job_queue"
"""A table that both programs have."""
MAX_FACTS = 1_000_000
MAX_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class GoFact:
    plugin: str
    fact_type: str
    job_id: str | None
    command: str | None
    text: str
    created_at: str | None


@dataclass(frozen=True, slots=True)
class GoScheduleEntry:
    """A schedule entry that has fired, or that an operator has paused."""

    plugin: str
    schedule_id: str
    last_fired_at: str | None
    last_success_at: str | None
    exhausted: bool
    paused: bool

    @property
    def name(self) -> str:
        return f"{self.plugin}/{self.schedule_id}"


@dataclass(frozen=True, slots=True)
class GoLedgerContents:
    """What can be imported from a ledger of the Go program."""

    states: dict[str, str]
    """By plugin, as JSON text."""
    facts: list[GoFact]
    """Oldest first."""
    unfinished: int
    """Number of queued and running jobs, which are not imported."""
    notes: list[str] = field(default_factory=list)
    """What cannot be imported, and why."""
    entries: list[GoScheduleEntry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class GoImportResult:
    states: list[str]
    """The plugins whose state was imported."""
    kept: list[str]
    """The plugins that already had a state, which was kept."""
    facts: int
    schedules: list[str]
    """The imported schedule entries, as `plugin/id`."""
    known: list[str]
    """The entries that this ledger already had, which were kept."""


def is_go_ledger(path: Path) -> bool:
    """Whether a file is a ledger of the Go program."""
    if not path.is_file() or not path.stat().st_size:
        return False
    connection = _open_without_traces(path)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
        return SHARED_TABLE in tables and not (HISTORY in tables and _was_migrated(connection))
    except apsw.Error:
        # Not a database, or a damaged one, which is reported when it is opened as a ledger.
        return False
    finally:
        connection.close()


def _was_migrated(connection: apsw.Connection) -> bool:
    """Our tables are created in one transaction with the row of their migration."""
    try:
        rows = connection.execute(f"SELECT checksum FROM {HISTORY} LIMIT 1").fetchall()
    except apsw.SQLError:
        return False
    return bool(rows)


def refuse_go_ledger(path: Path) -> None:
    """Raise `LedgerError` for a ledger of the Go program."""
    if is_go_ledger(path):
        raise LedgerError(
            f"{path} is a ledger of the Go program; import its state and schedules, and move it "
            "out of the way, with: ductile system import"
        )


def read_go_ledger(path: Path) -> GoLedgerContents:
    """The contents of the ledger at `path`, which is not changed."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    connection = _open(path)
    try:
        notes: list[str] = []
        states = dict(_read_states(connection, notes))
        facts = list(_read_facts(connection, notes))
        unfinished = connection.execute(
            "SELECT count(*) FROM job_queue WHERE status IN ('queued', 'running')"
        ).fetchall()[0][0]
        entries = list(_read_entries(connection, notes))
        return GoLedgerContents(states, facts, int(str(unfinished)), notes, entries)
    except apsw.Error as error:
        raise Refused(f"{path} cannot be read as a ledger: {error}") from error
    finally:
        connection.close()


def import_contents(tx: Tx, contents: GoLedgerContents, now: datetime) -> GoImportResult:
    """Write the contents of another ledger; what is in this one stays as it is."""
    moment = to_text(now)
    states, kept = [], []
    for plugin, text in sorted(contents.states.items()):
        row = tx.one("state_of", plugin=plugin)
        if row is not None and row[0] != "{}":
            kept.append(plugin)
            continue
        tx.run("ensure_state", plugin=plugin, now=moment)
        tx.run("set_state", plugin=plugin, state=text, now=moment)
        states.append(plugin)
    facts = 0
    for fact in contents.facts:
        if fact.plugin in kept:
            continue
        tx.run(
            "insert_fact",
            plugin=fact.plugin,
            fact_type=fact.fact_type,
            job_id=fact.job_id,
            command=fact.command,
            fact=fact.text,
            now=fact.created_at or moment,
        )
        facts += 1
    names: dict[bool, list[str]] = {True: [], False: []}
    for entry in contents.entries:
        names[_import_entry(tx, entry, moment)].append(entry.name)
    return GoImportResult(states, kept, facts, schedules=names[True], known=names[False])


def _import_entry(tx: Tx, entry: GoScheduleEntry, now: str) -> bool:
    """Insert the entry; False if this ledger already has it."""
    moments = filter(None, (entry.last_fired_at, entry.last_success_at, now))
    inserted = tx.run(
        "import_entry",
        plugin=entry.plugin,
        schedule_id=entry.schedule_id,
        first_seen=min(moments),
        last_fired_at=entry.last_fired_at,
        last_success_at=entry.last_success_at,
        paused=int(entry.paused),
        exhausted=int(entry.exhausted),
    )
    return inserted == 1


def _open_without_traces(path: Path) -> apsw.Connection:
    """Open a ledger for a short read that leaves no files behind.

    A ledger that is in use has a journal file. Without one the file is opened as immutable,
    because SQLite would otherwise create a journal and leave it there.
    """
    real = path.resolve()
    if any(real.with_name(f"{real.name}{end}").exists() for end in _JOURNALS):
        return _open(path)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"{real.as_uri()}?immutable=1", flags=flags)


_JOURNALS = ("-wal", "-journal")


def _open(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    return connection


def _read_states(connection: apsw.Connection, notes: list[str]) -> Iterator[tuple[str, str]]:
    for plugin, text in connection.execute("SELECT plugin_name, state FROM plugin_state"):
        found = _parse_object(text)
        if found is None or len(found) > MAX_STATE:
            notes.append(f"state of {plugin} skipped: not a JSON object of at most 1 MiB")
        elif not fits(str(plugin), LONGEST_NAME):
            notes.append(f"state skipped: its plugin's name has {size(str(plugin))} bytes")
        elif found != "{}":
            yield str(plugin), found


def _read_facts(connection: apsw.Connection, notes: list[str]) -> Iterator[GoFact]:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(plugin_facts)").fetchall()}
    if not columns:
        return
    order = "seq, rowid" if "seq" in columns else "created_at, rowid"
    rows = connection.execute(
        "SELECT plugin_name, fact_type, job_id, command, fact_json, created_at"
        f" FROM plugin_facts ORDER BY {order} LIMIT {MAX_FACTS}"
    )
    skipped = 0
    for plugin, kind, job_id, command, text, created_at in rows:
        found = _parse_object(text)
        if found is None or len(found) > MAX_STATE or not fits(str(plugin), LONGEST_NAME):
            skipped += 1
            continue
        yield GoFact(
            str(plugin),
            str(kind),
            _to_text(job_id),
            _to_text(command),
            found,
            _normalize_time(created_at),
        )
    if skipped:
        why = "not a JSON object of at most 1 MiB, or not a valid plugin name"
        notes.append(f"{skipped} facts skipped: {why}")


def _read_entries(connection: apsw.Connection, notes: list[str]) -> Iterator[GoScheduleEntry]:
    found = connection.execute("PRAGMA table_info(schedule_entries)").fetchall()
    if not found:
        return
    if missing := _ENTRY_COLUMNS - {row[1] for row in found}:
        lacks = ", ".join(sorted(missing))
        notes.append(f"schedules skipped: their table has no column {lacks}")
        return
    skipped = 0
    for row in connection.execute(
        "SELECT plugin, schedule_id, status, last_fired_at, last_success_at"
        f" FROM schedule_entries ORDER BY plugin, schedule_id LIMIT {MAX_ENTRIES}"
    ):
        plugin, id, status, fired, success = row
        if not (_is_name(plugin) and _is_name(id)):
            skipped += 1
            continue
        exhausted, paused = status == "exhausted", status == "paused_manual"
        entry = GoScheduleEntry(
            plugin, id, _normalize_time(fired), _normalize_time(success), exhausted, paused
        )
        if exhausted or paused or entry.last_fired_at or entry.last_success_at:
            yield entry
    if skipped:
        notes.append(f"{skipped} schedules skipped: not a valid plugin or schedule name")


_ENTRY_COLUMNS = frozenset({"plugin", "schedule_id", "status", "last_fired_at", "last_success_at"})


def _is_name(value: Any) -> TypeGuard[str]:
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    return fits(value, LONGEST_NAME)


def _parse_object(value: Any) -> str | None:
    """A JSON object as compact text."""
    try:
        found = orjson.loads(value if isinstance(value, str | bytes) else str(value))
    except orjson.JSONDecodeError:
        return None
    fit = isinstance(found, dict) and not too_deep(found)
    return orjson.dumps(found).decode() if fit else None


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _normalize_time(value: Any) -> str | None:
    try:
        return to_text(from_text(str(value)))
    except (ValueError, OverflowError):
        return None
