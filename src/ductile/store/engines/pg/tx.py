"""A transaction on PostgreSQL, where each statement is a round trip: rows are written in batches.

Rows that a transaction appends are kept until a statement uses their table, or until the commit,
and then written by one statement for all tables. A transaction that only appends rows needs no
connection before its commit, so that many of them can be committed together (`InsertOnlyTx`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple, NoReturn

import orjson
import psycopg
from psycopg.rows import dict_row

from ductile.store.engines import queries
from ductile.store.engines.api import INSERT_NOTICE, AppendedRows, Row

_PARAMETER = re.compile(r"%\((\w+)\)s")
_OPTIONAL_FILTER = re.compile(r"CAST\(%\(\w+\)s AS \w+\) IS NULL\s+OR")
_ALL_COLUMNS = re.compile(r"\b\w+\.\*|SELECT \* FROM [a-z]\w*\b(?!\()")


class BatchInsert(NamedTuple):
    """The form of an INSERT that writes many rows, given as a JSON array."""

    table: str
    sql: str
    parameters: tuple[tuple[str, str], ...]
    """Column and parameter."""

    def encode(self, rows: Sequence[Mapping[str, object]]) -> str:
        parameters = self.parameters
        encoded = [{column: row[name] for column, name in parameters} for row in rows]
        return orjson.dumps(encoded).decode()


@cache
def batch_insert(query: str) -> BatchInsert:
    """Derive it from the query of one row, whose values are parameters and literals."""
    match = queries.parse_insert("postgres", query)
    table, columns = match["table"], [column.strip() for column in match["columns"].split(",")]
    selected, parameters = [], []
    values = [value.strip() for value in match["values"].split(",")]
    for column, value in zip(columns, values, strict=True):
        found = _PARAMETER.fullmatch(value)
        selected.append(f"given.{column}" if found else value)
        if found:
            parameters.append((column, found[1]))
    sql = (
        f"INSERT INTO {table} ({', '.join(columns)}) SELECT {', '.join(selected)} "
        f"FROM json_populate_recordset(CAST(NULL AS {table}), CAST(%({query})s AS json)) AS given"
    )
    return BatchInsert(table, sql + (match["returning"] or ""), tuple(parameters))


@cache
def _write_all(inserts: tuple[str, ...]) -> bytes:
    """One statement for all of them; it returns what the last one does."""
    *others, last = (batch_insert(query).sql for query in inserts)
    parts = ", ".join(f"written_{number} AS ({sql})" for number, sql in enumerate(others))
    return (f"WITH {parts} {last}" if parts else last).encode()


@cache
def _may_prepare(query: str) -> bool | None:
    """None: after some executions. False where the best plan depends on the values, because a
    filter is applied unless its value is NULL; and for all columns of a table, because the
    server refuses a prepared statement whose columns a newer node's migration has changed."""
    sql = queries.load_queries("postgres")[query]
    return False if _OPTIONAL_FILTER.search(sql) or _ALL_COLUMNS.search(sql) else None


class PostgresTx(AppendedRows):
    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        super().__init__()
        self._connection = connection
        self._queries = queries.load_queries("postgres")

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._execute(query, values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        return self._execute(query, values).fetchone()

    def run(self, query: str, /, **values: Any) -> int:
        return self._execute(query, values).rowcount

    def insert(self, query: str, /, **values: Any) -> int:
        row = self._execute(query, values).fetchone()
        assert row is not None
        id: int = row[0]
        return id

    def dicts(self, query: str, /, **values: Any) -> list[dict[str, Any]]:
        self._write_rows_for(query)
        with self._connection.cursor(row_factory=dict_row) as cursor:
            prepare = _may_prepare(query)
            return cursor.execute(self._sql(query), values, prepare=prepare).fetchall()

    def update_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """One statement, which the query `{query}_rows` has."""
        if not rows:
            return frozenset()
        ids = [row["id"] for row in rows]
        encoded = orjson.dumps(rows).decode()
        changed = self._execute(f"{query}_rows", {"ids": ids, "rows": encoded}).fetchall()
        return frozenset(id for (id,) in changed)

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:
        key = {"key": lock_key(kind, name)}
        if wait:
            self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%(key)s, 0))", key
            )
            return True
        row = self._connection.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%(key)s, 0))", key
        ).fetchone()
        return bool(row and row[0])

    def adopt(self, other: InsertOnlyTx) -> None:
        """Append the rows of a transaction that only appends, and take over its effects."""
        for query, rows in other._rows.items():
            self._rows.setdefault(query, []).extend(rows)
        self._notices += other._notices
        self.effects.merge(other.effects)

    def write_rows(self) -> None:
        """Write what was appended."""
        rows, self._rows = self._rows, {}
        if not rows:
            return
        # In one order, so that there are few statements to prepare; the notices return their ids.
        inserts = tuple(sorted(rows, key=lambda query: (query == INSERT_NOTICE, query)))
        values = {query: batch_insert(query).encode(rows[query]) for query in inserts}
        cursor = self._connection.execute(_write_all(inserts), values)
        if inserts[-1] == INSERT_NOTICE:
            stored = zip(self._notices, cursor.fetchall(), strict=True)
            self.effects.notices += [notice._replace(id=id) for notice, (id,) in stored]
            self._notices = []

    def _execute(self, query: str, values: Mapping[str, Any]) -> psycopg.Cursor[Row]:
        self._write_rows_for(query)
        return self._connection.execute(self._sql(query), values, prepare=_may_prepare(query))

    def _write_rows_for(self, query: str) -> None:
        """Write what was appended, if this query could see it."""
        if any(queries.uses_rows_of("postgres", query, appended) for appended in self._rows):
            self.write_rows()

    def _sql(self, query: str) -> Any:
        return self._queries[query]


class NeedsConnection(BaseException):
    """A transaction does more than append rows. No `except Exception` of its own may catch it."""


class InsertOnlyTx(AppendedRows):
    """Runs a transaction that only appends rows; raises `NeedsConnection` if it does more."""

    def all(self, query: str, /, **values: Any) -> NoReturn:  # noqa: ARG002
        raise NeedsConnection

    one = run = insert = dicts = all

    def write_rows(self) -> NoReturn:
        raise NeedsConnection

    def update_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> NoReturn:  # noqa: ARG002
        raise NeedsConnection

    def hold(self, kind: str, name: str, *, wait: bool) -> NoReturn:  # noqa: ARG002
        raise NeedsConnection


def lock_key(kind: str, name: str) -> str:
    """The text whose hash is the number of an advisory lock."""
    return f"ductile:{kind}:{name}"
