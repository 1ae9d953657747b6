"""The SQLite ledger of the earlier Go program: recognizing it, and importing its contents."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import apsw
import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import from_text, to_text
from ductile.core.jobs.limits import LONGEST_DEDUPE_KEY, LONGEST_NAME, fits, size, too_deep
from ductile.core.jobs.plugin_protocol import without_nul
from ductile.errors import LedgerError, NotFound, Refused
from ductile.model import SubmittedBy
from ductile.store.engines.api import Tx
from ductile.store.engines.migrate import HISTORY
from ductile.store.jobs.plugin_state import MAX_STATE

SHARED_TABLE = "job_queue"
"""A table that both programs have."""
MAX_FACTS = 1_000_000
MAX_ENTRIES = 100_000
MAX_JOBS = 1_000_000
INTERRUPTED = "it was running when the Go program stopped"


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
class GoJob:
    """A queued job, or one that was running when the program stopped; a root of its tree."""

    id: str
    plugin: str
    command: str
    payload: str | None
    attempt: int
    max_attempts: int
    submitted_by: str
    dedupe_key: str | None
    created_at: str | None
    next_retry_at: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class GoLedgerContents:
    """What can be imported from a ledger of the Go program."""

    states: dict[str, str]
    """By plugin, as JSON text."""
    facts: list[GoFact]
    """Oldest first."""
    unfinished: int
    """Number of queued and running jobs that cannot be imported."""
    notes: list[str] = field(default_factory=list)
    """What cannot be imported, and why."""
    entries: list[GoScheduleEntry] = field(default_factory=list)
    jobs: list[GoJob] = field(default_factory=list)
    """In queue order."""


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
    jobs: int = 0
    """The number of queued jobs that were imported."""


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
        jobs = list(_read_jobs(connection))
        left = int(str(unfinished)) - len(jobs)
        return GoLedgerContents(states, facts, left, notes, entries, jobs)
    except apsw.Error as error:
        raise Refused(f"{path} cannot be read as a ledger: {error}") from error
    finally:
        connection.close()


def import_contents(
    tx: Tx,
    contents: GoLedgerContents,
    now: datetime,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> GoImportResult:
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
        progress(facts, len(contents.facts))
    names: dict[bool, list[str]] = {True: [], False: []}
    for entry in contents.entries:
        names[_import_entry(tx, entry, moment)].append(entry.name)
    jobs = sum(_import_job(tx, job, moment) for job in contents.jobs)
    return GoImportResult(states, kept, facts, names[True], names[False], jobs)


def _import_job(tx: Tx, job: GoJob, now: str) -> int:
    """Queue the job; 0 if this ledger already has it, or had it before it was pruned."""
    if tx.one("attempt_exists", id=job.id) is not None:
        return 0
    columns = {**asdict(job), "created_at": job.created_at or now}
    inserted = tx.run("import_job", **columns)
    tx.effects.ready += inserted
    return inserted


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


def _read_jobs(connection: apsw.Connection) -> Iterator[GoJob]:
    """The jobs that can run here: roots, because the context of others is not imported."""
    columns = {row[1] for row in connection.execute("PRAGMA table_info(job_queue)").fetchall()}
    if _JOB_COLUMNS - columns:
        return
    linked = [name for name in _LINKS if name in columns]
    alone = "".join(f" AND coalesce({name}, '') = ''" for name in linked)
    rows = connection.execute(
        f"SELECT {', '.join(_JOB_FIELDS)}, status FROM job_queue"
        f" WHERE status IN ('queued', 'running'){alone} ORDER BY created_at, rowid LIMIT {MAX_JOBS}"
    )
    for *values, status in rows:
        job = dict(zip(_JOB_FIELDS, values, strict=True))
        payload = None if job["payload"] is None else _parse_json(job["payload"])
        texts = (job["dedupe_key"] or "", job["plugin"], job["command"], job["id"])
        fit = fits(str(texts[0]), LONGEST_DEDUPE_KEY) and all(map(_is_name, texts[1:]))
        whole = all(isinstance(job[name], int) for name in ("attempt", "max_attempts"))
        if not (fit and whole) or (payload is None and job["payload"] is not None):
            continue
        yield GoJob(
            **{
                **job,
                "payload": payload,
                "submitted_by": _producer(job["submitted_by"]),
                "dedupe_key": _to_text(job["dedupe_key"]),
                "created_at": _normalize_time(job["created_at"]),
                "next_retry_at": _normalize_time(job["next_retry_at"]),
                "last_error": INTERRUPTED if status == "running" else _to_text(job["last_error"]),
            }
        )


_JOB_FIELDS = tuple(GoJob.__annotations__)
_JOB_COLUMNS = frozenset({*_JOB_FIELDS, "status"})
_LINKS = ("event_context_id", "pipeline", "parent_job_id")


def _producer(value: Any) -> str:
    known = {producer.value for producer in SubmittedBy}
    return str(value) if value in known else SubmittedBy.CLI.value


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


def _parse_json(value: Any) -> str | None:
    """A JSON document as compact text, as `NULL` bytes are not stored."""
    try:
        found = orjson.loads(value if isinstance(value, str | bytes) else str(value))
    except orjson.JSONDecodeError:
        return None
    return None if too_deep(found) else orjson.dumps(without_nul(found)).decode()


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


def _normalize_time(value: Any) -> str | None:
    try:
        return to_text(from_text(str(value)))
    except (ValueError, OverflowError):
        return None
