"""The migrations' view of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from ductile.store.engines.api import Row
from ductile.store.engines.migrate import HISTORY, HISTORY_DDL, Migration
from ductile.store.engines.pg.tx import lock_key

_OPEN_BOOTS = """
SELECT boots.id, boots.node, boots.version, nodes.schema_version
FROM boots LEFT JOIN nodes ON nodes.boot = boots.id WHERE boots.ended_at IS NULL
ORDER BY boots.node
"""
_IS_FREE = "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%(key)s, 0))"
_RESET_RESTORED_POSITIONS = """
WITH server AS (
  SELECT CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint) AS next_xact
), restored AS (
  SELECT 1 FROM server
  WHERE EXISTS (SELECT 1 FROM notices WHERE xact >= next_xact)
     OR EXISTS (SELECT 1 FROM alert_rules WHERE xact >= next_xact)
), rules AS (
  UPDATE alert_rules SET xact = 0 WHERE EXISTS (SELECT 1 FROM restored)
)
UPDATE notices SET xact = 0 WHERE xact <> 0 AND EXISTS (SELECT 1 FROM restored)
"""
"""A database that was restored on another server names transactions which that server has not
reached yet. No visible row can belong to one of them. Then all notices are sorted first, by their
ids, and the rules continue after the last one that they have evaluated."""


class PostgresSchema:
    engine = "postgres"

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def applied(self) -> dict[int, str]:
        with self._connection.transaction():
            self._begin()
        rows = self._connection.execute(f"SELECT number, checksum FROM {HISTORY}")
        found: dict[int, str] = dict(rows.fetchall())
        self._connection.rollback()
        return found

    def before(self, migration: Migration) -> None:
        """Does nothing: the server has backups of its own, and a failed migration rolls back."""

    def list_older_nodes(self, number: int) -> list[str]:
        """A node lives while a session holds the lock of its boot."""
        found = []
        for boot, name, version, known in self._connection.execute(_OPEN_BOOTS).fetchall():
            if known is not None and known >= number:
                continue
            key = {"key": lock_key("boot", boot)}
            row = self._connection.execute(_IS_FREE, key).fetchone()
            if not (row and row[0]):
                found.append(f"{name or boot} ({version}, schema {known or 'unknown'})")
        self._connection.rollback()
        return found

    def apply(self, pending: Sequence[Migration]) -> None:
        with self._connection.transaction():
            self._begin()
            for migration in pending:
                row = self._connection.execute(
                    f"SELECT 1 FROM {HISTORY} WHERE number = %s", (migration.number,)
                ).fetchone()
                if row is not None:
                    continue
                for statement in migration.statements:
                    self._connection.execute(statement)
                self._connection.execute(
                    f"INSERT INTO {HISTORY} VALUES (%s, %s, %s)",
                    (migration.number, migration.name, migration.checksum),
                )

    def _begin(self) -> None:
        """Take a lock: two nodes may start at once, and CREATE IF NOT EXISTS can still collide."""
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('ductile', 0))")
        self._connection.execute(HISTORY_DDL)


def reset_restored_positions(connection: psycopg.Connection[Row]) -> None:
    connection.execute(_RESET_RESTORED_POSITIONS)
