"""A transaction of the ledger on SQLite: named queries on one connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import apsw

from ductile.store.engines import queries
from ductile.store.engines.api import Effects, Row, StoredNotice

FREE_PAGES_KEPT = 1000
"""Free pages that are left in the file for new rows."""


class SqliteTx:
    __slots__ = ("_connection", "_execute", "_queries", "effects")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._queries = queries.load_queries("sqlite")
        self.effects = Effects()

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._execute(self._queries[query], values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        rows = self._execute(self._queries[query], values).fetchall()
        return rows[0] if rows else None

    def run(self, query: str, /, **values: Any) -> int:
        self._execute(self._queries[query], values)
        return self._connection.changes()

    def insert(self, query: str, /, **values: Any) -> int:
        self._execute(self._queries[query], values)
        return self._connection.last_insert_rowid()

    def append(self, query: str, /, **values: Any) -> None:
        self._execute(self._queries[query], values)

    def post(self, notice: StoredNotice, plugin: str | None) -> None:
        id = self.insert("insert_notice", **notice.insert_values(plugin))
        self.effects.notices.append(notice._replace(id=id))

    def write_rows(self) -> None:
        """Nothing to do: `append` writes at once."""

    def update_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        return frozenset(row["id"] for row in rows if self.run(query, **row))

    def dicts(self, query: str, /, **values: Any) -> list[dict[str, Any]]:
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
