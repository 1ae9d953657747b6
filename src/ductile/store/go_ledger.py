"""The ledger of the Go program: how to tell it from ours, and what is remembered in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeGuard

import apsw
import orjson

from ductile.clock import from_text, to_text
from ductile.core.jobs.limits import LONGEST_NAME, fits, size, too_deep
from ductile.errors import LedgerError, NotFound, Refused
from ductile.record import dataclass
from ductile.store.engines.api import Tx
from ductile.store.engines.migrate import HISTORY
from ductile.store.jobs.plugin_state import MAX_STATE

THEIRS = "job_queue"
MOST_FACTS = 1_000_000
MOST_ENTRIES = 100_000


@dataclass(frozen=True, slots=True)
class Fact:
    plugin: str
    fact_type: str
    job_id: str | None
    command: str | None
    text: str
    created_at: str | None


@dataclass(frozen=True, slots=True)
class Entry:
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
class Memory:
    """What the plugins and schedules of another ledger remember."""

    states: dict[str, str]
    """By plugin, as JSON text."""
    facts: list[Fact]
    """The oldest first."""
    unfinished: int
    """Jobs that wait or run there, which stay behind."""
    notes: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Taken:
    states: list[str]
    """The plugins whose state was taken over."""
    kept: list[str]
    """Those that had one here already, which stays."""
    facts: int
    schedules: list[str]
    """The entries that go on from where they were there, as `plugin/id`."""
    known: list[str]
    """Those that this ledger knows already, which go on as they are."""


def is_foreign(path: Path) -> bool:
    """Whether a file is a ledger, but none that we made."""
    if not path.is_file() or not path.stat().st_size:
        return False
    connection = glimpsed(path)
    try:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema").fetchall()}
        return THEIRS in tables and not (HISTORY in tables and _was_migrated(connection))
    except apsw.Error:
        # Not a database, or a broken one: whoever opens it for real says so.
        return False
    finally:
        connection.close()


def _was_migrated(connection: apsw.Connection) -> bool:
    """Our tables come with the migration that made them, in one transaction."""
    try:
        rows = connection.execute(f"SELECT checksum FROM {HISTORY} LIMIT 1").fetchall()
    except apsw.SQLError:
        return False
    return bool(rows)


def refuse_go_ledger(path: Path) -> None:
    if is_foreign(path):
        raise LedgerError(
            f"{path} is the ledger of another program; take over what its plugins remember, "
            "and have it kept aside: ductile system import"
        )


def read(path: Path) -> Memory:
    """What the ledger at `path` knows; it is not changed."""
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    connection = _opened(path)
    try:
        notes: list[str] = []
        states = dict(_states(connection, notes))
        facts = list(_facts(connection, notes))
        unfinished = connection.execute(
            "SELECT count(*) FROM job_queue WHERE status IN ('queued', 'running')"
        ).fetchall()[0][0]
        entries = list(_entries(connection, notes))
        return Memory(states, facts, int(str(unfinished)), notes, entries)
    except apsw.Error as error:
        raise Refused(f"{path} is no ledger that can be read: {error}") from error
    finally:
        connection.close()


def take_over(tx: Tx, memory: Memory, now: datetime) -> Taken:
    """Write what is remembered in another ledger; what is in ours stays as it is."""
    moment = to_text(now)
    states, kept = [], []
    for plugin, text in sorted(memory.states.items()):
        row = tx.one("state_of", plugin=plugin)
        if row is not None and row[0] != "{}":
            kept.append(plugin)
            continue
        tx.run("ensure_state", plugin=plugin, now=moment)
        tx.run("set_state", plugin=plugin, state=text, now=moment)
        states.append(plugin)
    facts = 0
    for fact in memory.facts:
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
    for entry in memory.entries:
        names[_take_entry(tx, entry, moment)].append(entry.name)
    return Taken(states, kept, facts, schedules=names[True], known=names[False])


def _take_entry(tx: Tx, entry: Entry, now: str) -> bool:
    """Whether it was not known here."""
    moments = filter(None, (entry.last_fired_at, entry.last_success_at, now))
    taken = tx.run(
        "take_entry",
        plugin=entry.plugin,
        schedule_id=entry.schedule_id,
        first_seen=min(moments),
        last_fired_at=entry.last_fired_at,
        last_success_at=entry.last_success_at,
        paused=int(entry.paused),
        exhausted=int(entry.exhausted),
    )
    return taken == 1


def glimpsed(path: Path) -> apsw.Connection:
    """A connection for a short look into a ledger, which leaves nothing beside it.

    Whoever has a ledger open has a journal beside it. Where there is none the file is read as it
    is: else SQLite would make one to read it, which nobody takes away.
    """
    real = path.resolve()
    if any(real.with_name(f"{real.name}{end}").exists() for end in _JOURNALS):
        return _opened(path)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"{real.as_uri()}?immutable=1", flags=flags)


_JOURNALS = ("-wal", "-journal")


def _opened(path: Path) -> apsw.Connection:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    return connection


def _states(connection: apsw.Connection, notes: list[str]) -> Iterator[tuple[str, str]]:
    for plugin, text in connection.execute("SELECT plugin_name, state FROM plugin_state"):
        found = _object(text)
        if found is None or len(found) > MAX_STATE:
            notes.append(f"the state of {plugin} is no JSON object of at most 1 MiB, and is left")
        elif not fits(str(plugin), LONGEST_NAME):
            notes.append(f"the name of a plugin has {size(str(plugin))} bytes; its state is left")
        elif found != "{}":
            yield str(plugin), found


def _facts(connection: apsw.Connection, notes: list[str]) -> Iterator[Fact]:
    columns = {row[1] for row in connection.execute("PRAGMA table_info(plugin_facts)").fetchall()}
    if not columns:
        return
    order = "seq, rowid" if "seq" in columns else "created_at, rowid"
    rows = connection.execute(
        "SELECT plugin_name, fact_type, job_id, command, fact_json, created_at"
        f" FROM plugin_facts ORDER BY {order} LIMIT {MOST_FACTS}"
    )
    left = 0
    for plugin, kind, job_id, command, text, created_at in rows:
        found = _object(text)
        if found is None or len(found) > MAX_STATE or not fits(str(plugin), LONGEST_NAME):
            left += 1
            continue
        yield Fact(
            str(plugin), str(kind), _text(job_id), _text(command), found, _moment(created_at)
        )
    if left:
        why = "no JSON object of at most 1 MiB, or no name of a plugin"
        notes.append(f"{left} facts are left: {why}")


def _entries(connection: apsw.Connection, notes: list[str]) -> Iterator[Entry]:
    found = connection.execute("PRAGMA table_info(schedule_entries)").fetchall()
    if not found:
        return
    if missing := _ENTRY - {row[1] for row in found}:
        lacks = ", ".join(sorted(missing))
        notes.append(f"the schedules' past is left: their table has no column {lacks}")
        return
    left = 0
    for row in connection.execute(
        "SELECT plugin, schedule_id, status, last_fired_at, last_success_at"
        f" FROM schedule_entries ORDER BY plugin, schedule_id LIMIT {MOST_ENTRIES}"
    ):
        plugin, id, status, fired, success = row
        if not (_is_name(plugin) and _is_name(id)):
            left += 1
            continue
        exhausted, paused = status == "exhausted", status == "paused_manual"
        entry = Entry(plugin, id, _moment(fired), _moment(success), exhausted, paused)
        if exhausted or paused or entry.last_fired_at or entry.last_success_at:
            yield entry
    if left:
        notes.append(f"{left} schedules' past is left: they have no name that an entry can have")


_ENTRY = frozenset({"plugin", "schedule_id", "status", "last_fired_at", "last_success_at"})


def _is_name(value: Any) -> TypeGuard[str]:
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    return fits(value, LONGEST_NAME)


def _object(value: Any) -> str | None:
    """A JSON object as compact text."""
    try:
        found = orjson.loads(value if isinstance(value, str | bytes) else str(value))
    except orjson.JSONDecodeError:
        return None
    fit = isinstance(found, dict) and not too_deep(found)
    return orjson.dumps(found).decode() if fit else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _moment(value: Any) -> str | None:
    try:
        return to_text(from_text(str(value)))
    except (ValueError, OverflowError):
        return None
