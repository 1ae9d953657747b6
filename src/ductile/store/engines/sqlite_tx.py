"""A transaction of the ledger on SQLite: named queries on one connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from ductile.store.engines import queries
from ductile.store.engines.api import INSERT_NOTICE, AppendedRows, Row, StoredNotice

ROWS_PER_INSERT = (16, 4, 1)
"""Each is a statement of its own to prepare. No more rows than the first are kept in memory."""
FREE_PAGES_KEPT = 1000
"""Free pages that are left in the file for new rows."""


class SqliteTx(AppendedRows):
    """A transaction, or several that are committed together and share what they append."""

    __slots__ = ("_connection", "_execute", "_notices", "_queries", "_rows", "effects")

    def __init__(self, connection: apsw.Connection) -> None:
        super().__init__()
        self._connection = connection
        self._execute = connection.execute
        self._queries = queries.load_queries("sqlite")

    def all(self, query: str, /, **values: Any) -> list[Row]:
        if self._rows:
            self._write_rows_for(query)
        return self._execute(self._queries[query], values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        rows = self.all(query, **values)
        return rows[0] if rows else None

    def run(self, query: str, /, **values: Any) -> int:
        if self._rows:
            self._write_rows_for(query)
        self._execute(self._queries[query], values)
        return self._connection.changes()

    def insert(self, query: str, /, **values: Any) -> int:
        self.run(query, **values)
        return self._connection.last_insert_rowid()

    def _add(self, query: str, values: dict[str, Any]) -> None:
        rows = self._rows.setdefault(query, [])
        rows.append(values)
        if len(rows) == ROWS_PER_INSERT[0]:
            self._write(query)

    def write_rows(self) -> None:
        for query in list(self._rows):
            self._write(query)

    def _write(self, query: str) -> None:
        """Write the appended rows of a query, many per statement.

        Python's lock is released and taken again around each statement.
        """
        rows = self._rows.pop(query)
        for size in ROWS_PER_INSERT:
            while len(rows) >= size:
                some, rows = rows[:size], rows[size:]
                sql, names = queries.insert_rows(query, size)
                self._execute(sql, [row[name] for row in some for name in names])
                if query == INSERT_NOTICE:
                    self._announce(size)

    def _announce(self, size: int) -> None:
        """Make the notices that a statement has written effects; their ids are consecutive."""
        first = self._connection.last_insert_rowid() - size + 1
        written, self._notices = self._notices[:size], self._notices[size:]
        self.effects.notices += [
            StoredNotice(id, *notice[1:]) for id, notice in enumerate(written, first)
        ]

    def _write_rows_for(self, query: str) -> None:
        """Write what was appended, if this query could see it."""
        if any(queries.uses_rows_of("sqlite", query, appended) for appended in self._rows):
            self.write_rows()

    def update_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        return frozenset(row["id"] for row in rows if self.run(query, **row))

    def dicts(self, query: str, /, **values: Any) -> list[dict[str, Any]]:
        self._write_rows_for(query)
        cursor = self._connection.cursor()
        cursor.execute(self._queries[query], values)
        try:
            names = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:
            return []
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:  # noqa: ARG002
        return True

    def vacuum(self, pages: int) -> bool:
        """Return up to `pages` free pages to the file system; whether more can be returned."""
        free = int(self._connection.pragma("freelist_count"))
        if free > FREE_PAGES_KEPT:
            for _ in self._connection.execute(f"PRAGMA incremental_vacuum({pages})"):
                pass
        return free - pages > FREE_PAGES_KEPT
