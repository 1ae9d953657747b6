"""Transfer of rows between a PostgreSQL ledger and its copy, a SQLite ledger in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import apsw
import psycopg
from psycopg import sql

from ductile.core.jobs.plugin_protocol import without_nul
from ductile.errors import LedgerError
from ductile.store.backup.copy import Progress
from ductile.store.engines.api import Row
from ductile.store.engines.migrate import HISTORY, compare_history, load_migrations
from ductile.store.engines.pg.schema import PostgresSchema
from ductile.store.engines.sqlite_schema import SqliteSchema

BATCH = 1000
_CREATE_FUNCTION = re.compile(r"CREATE FUNCTION (\w+)\(")
SERVER_COLUMNS = frozenset({("notices", "xact"), ("alert_rules", "xact")})
"""Transaction ids of one server: elsewhere the column keeps its default."""

Postgres = psycopg.Connection[Row]
Columns = Mapping[str, Mapping[str, str]]
"""Table to column to type."""


def export_ledger(connection: Postgres, target: Path, progress: Progress) -> None:
    """Copy one snapshot of the database into the empty file `target`."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    there = _columns(connection)
    if HISTORY not in there:
        raise LedgerError("not a ductile ledger: no migration was applied to it")
    applied = connection.execute(f"SELECT number, checksum FROM {HISTORY}").fetchall()
    history = compare_history(dict(applied), "sqlite")
    history.check()
    total = _estimate(connection)
    copy = apsw.Connection(str(target))
    try:
        copy.pragma("journal_mode", "off")
        copy.pragma("synchronous", "off")
        copy.pragma("auto_vacuum", 2)
        with copy:
            SqliteSchema(copy, target).apply(history.applied)
            done = 0
            for table, names in _tables(copy):
                # The rows that a migration inserts are among those that follow.
                copy.execute(f"DELETE FROM {table}")
                columns = _shared(there, table, names)
                for rows in _batches(_read(connection, table, columns)):
                    _insert(copy, table, tuple(columns), rows)
                    done += len(rows)
                    progress(done, max(done, total))
                _copy_counters(connection, copy, table, columns)
    finally:
        copy.close()


def replace_ledger(connection: Postgres, source: Path, old_schema: str, progress: Progress) -> bool:
    """Replace the ledger by the copy in `source`, and move the old one to schema `old_schema`.

    Runs in the caller's transaction. Returns whether there was a ledger.
    """
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('ductile', 0))")
    copy = apsw.Connection(str(source), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        history = compare_history(SqliteSchema(copy, source).applied(), "postgres")
        history.check()
        layout = [*_tables(copy)]
        names = [HISTORY, *(table for table, _ in layout)]
        replaced = _move_tables(connection, names, old_schema)
        PostgresSchema(connection).apply(history.applied)
        there, total, done = _columns(connection), _count(copy, layout), 0
        # In the order of their names, a table precedes those that refer to it.
        for table, known in layout:
            # The rows that a migration inserts are among those that follow.
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
            columns = _shared(there, table, known)
            for rows in _batches(_stored(copy, table, columns)):
                _write(connection, table, columns, rows)
                done += len(rows)
                progress(done, total)
            _restore_counters(connection, copy, table, columns)
    finally:
        copy.close()
    return replaced


def _tables(copy: apsw.Connection) -> Iterator[tuple[str, frozenset[str]]]:
    """The tables of a copy and their columns, by name, without the migration history."""
    found = copy.execute(
        "SELECT m.name, group_concat(c.name, ',') FROM sqlite_master m, pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name <> ?"
        " GROUP BY m.name ORDER BY m.name",
        (HISTORY,),
    )
    for name, columns in found.fetchall():
        yield str(name), frozenset(str(columns).split(","))


def _columns(connection: Postgres) -> dict[str, dict[str, str]]:
    rows = connection.execute(
        "SELECT table_name, column_name, udt_name FROM information_schema.columns"
        " WHERE table_schema = current_schema() ORDER BY table_name, ordinal_position"
    )
    found: dict[str, dict[str, str]] = {}
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found


def _shared(there: Columns, table: str, names: frozenset[str]) -> dict[str, str]:
    """The columns of a table that both sides have, with their types."""
    if table not in there:
        raise LedgerError(f"the table {table} is missing")
    return {
        name: kind
        for name, kind in there[table].items()
        if name in names and (table, name) not in SERVER_COLUMNS
    }


def _estimate(connection: Postgres) -> int:
    """The number of rows, as the server estimates it without counting."""
    row = connection.execute(
        "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0) FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = current_schema() AND c.relkind = 'r'"
    ).fetchone()
    return int(row[0]) if row else 0


def _count(copy: apsw.Connection, layout: list[tuple[str, frozenset[str]]]) -> int:
    counts = (copy.execute(f"SELECT count(*) FROM {table}").get for table, _ in layout)
    return sum(int(str(count)) for count in counts)


def _move_tables(connection: Postgres, names: list[str], schema: str) -> bool:
    """Move these tables and our functions to a new schema; whether there were any."""
    there = _columns(connection)
    old = [name for name in names if name in there]
    if not old:
        return False
    try:
        with connection.transaction():
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
    except psycopg.errors.InsufficientPrivilege as error:
        raise LedgerError(
            "the replaced ledger is kept in a schema of its own, which this user may not create; "
            "grant it: GRANT CREATE ON DATABASE ... TO ..."
        ) from error
    for name in old:
        connection.execute(
            sql.SQL("ALTER TABLE {} SET SCHEMA {}").format(
                sql.Identifier(name), sql.Identifier(schema)
            )
        )
    for name in _list_functions():
        if connection.execute("SELECT to_regproc(%s)", (name,)).fetchone() != (None,):
            connection.execute(
                sql.SQL("ALTER FUNCTION {}() SET SCHEMA {}").format(
                    sql.Identifier(name), sql.Identifier(schema)
                )
            )
    return True


def _list_functions() -> list[str]:
    """The functions that the migrations create."""
    statements = (text for each in load_migrations("postgres") for text in each.statements)
    return [found[1] for text in statements if (found := _CREATE_FUNCTION.match(text))]


def _column_list(columns: Mapping[str, str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _read(connection: Postgres, table: str, columns: Mapping[str, str]) -> Iterator[Row]:
    query = sql.SQL("COPY (SELECT {} FROM {} ORDER BY 1) TO STDOUT").format(
        _column_list(columns), sql.Identifier(table)
    )
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(list(columns.values()))
        yield from copy.rows()


def _insert(copy: apsw.Connection, table: str, columns: tuple[str, ...], rows: list[Row]) -> None:
    marks = ", ".join("?" * len(columns))
    copy.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", rows)


def _stored(copy: apsw.Connection, table: str, columns: Mapping[str, str]) -> Iterator[Row]:
    yield from copy.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY 1")


def _write(connection: Postgres, table: str, columns: Mapping[str, str], rows: list[Row]) -> None:
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), _column_list(columns))
    kinds = list(columns.values())
    with connection.cursor() as cursor, cursor.copy(query) as copy:
        copy.set_types(kinds)
        for row in rows:
            copy.write_row([_convert(kind, value) for kind, value in zip(kinds, row, strict=True)])


def _convert(kind: str, value: Any) -> Any:
    """A stored value of SQLite, as PostgreSQL accepts it."""
    if value is None:
        return None
    if kind == "bool":
        return bool(value)
    return without_nul(value) if isinstance(value, str) else value


def _batches(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while batch := list(islice(rows, BATCH)):
        yield batch


def _sequence(connection: Postgres, table: str, column: str) -> str | None:
    row = connection.execute("SELECT pg_get_serial_sequence(%s, %s)", (table, column)).fetchone()
    return row[0] if row else None


def _copy_counters(
    connection: Postgres, copy: apsw.Connection, table: str, columns: Mapping[str, str]
) -> None:
    """Keep the id counters, so that the id of a deleted row is not reused."""
    for column in columns:
        sequence = _sequence(connection, table, column)
        if sequence is not None and _has_counter(copy, table):
            row = connection.execute(f"SELECT last_value, is_called FROM {sequence}").fetchone()
            if row and row[1]:
                copy.execute("DELETE FROM sqlite_sequence WHERE name = ?", (table,))
                copy.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (table, row[0]))


def _restore_counters(
    connection: Postgres, copy: apsw.Connection, table: str, columns: Mapping[str, str]
) -> None:
    for column in columns:
        sequence = _sequence(connection, table, column)
        if sequence is None:
            continue
        last = int(str(copy.execute(f"SELECT coalesce(max({column}), 0) FROM {table}").get))
        if _has_counter(copy, table):
            given = copy.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (table,)).get
            last = max(last, int(str(given or 0)))
        if last:
            connection.execute("SELECT setval(%s, %s)", (sequence, last))


def _has_counter(copy: apsw.Connection, table: str) -> bool:
    made = copy.execute("SELECT sql FROM sqlite_master WHERE name = ?", (table,)).get
    return "AUTOINCREMENT" in str(made)
