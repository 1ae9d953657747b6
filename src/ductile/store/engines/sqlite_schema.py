"""The migrations' view of a SQLite file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import apsw

from ductile import files
from ductile.store.engines.migrate import HISTORY, HISTORY_DDL, Migration


class SqliteSchema:
    engine = "sqlite"

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def applied(self) -> dict[int, str]:
        if not self._connection.table_exists(None, HISTORY):
            return {}
        rows = self._connection.execute(f"SELECT number, checksum FROM {HISTORY}")
        return {int(str(row[0])): str(row[1]) for row in rows.fetchall()}

    def before(self, migration: Migration) -> None:
        name = f"{self._path.name}.before-{migration.number:04}"
        # SQLite refuses links in any part of the path.
        target = self._path.parent.resolve() / name
        os.close(files.open_new(target))
        flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW
        copy = apsw.Connection(str(target), flags)
        with copy.backup("main", self._connection, "main") as backup:
            backup.step()
        copy.close()

    def list_older_nodes(self, number: int) -> list[str]:  # noqa: ARG002
        """None: one process has the file."""
        return []

    def apply(self, pending: Sequence[Migration]) -> None:
        with self._connection:
            self._connection.execute(HISTORY_DDL)
            for migration in pending:
                for statement in migration.statements:
                    self._connection.execute(statement)
                self._connection.execute(
                    f"INSERT INTO {HISTORY} VALUES (?, ?, ?)",
                    (migration.number, migration.name, migration.checksum),
                )
