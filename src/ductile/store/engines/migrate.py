"""Numbered, checksummed migrations in one transaction; SQLite makes a backup first.

A migration only adds to the schema, so that running nodes of the version before it continue
(expand). One that older versions cannot live with says so by its name, `contract_...`: it waits
until no node lives that does not know it. The version that ships it runs with and without it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Protocol

from ductile._fast_dataclass import dataclass
from ductile.errors import LedgerError
from ductile.store.engines.queries import translate_dialect

HISTORY = "schema_migrations"
HISTORY_DDL = (
    f"CREATE TABLE IF NOT EXISTS {HISTORY} "
    "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
)


CONTRACT = "contract_"
"""Begins the name of a migration that nodes of older versions cannot live with."""


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    checksum: str
    statements: tuple[str, ...]

    @property
    def is_contract(self) -> bool:
        return self.name.startswith(CONTRACT)


@dataclass(frozen=True, slots=True)
class History:
    """The migrations of a ledger, compared with those that this version ships."""

    applied: list[Migration]
    pending: list[Migration]
    foreign: list[tuple[int, str]]
    """Migrations of a newer version or another program: the number, and how it differs."""

    def check(self) -> None:
        """Raise `LedgerError` if a newer version or another program has written the ledger."""
        if self.foreign:
            number, how = self.foreign[-1]
            raise LedgerError(f"migration {number:04} of the ledger {how}")


class Schema(Protocol):
    """What the migrations need from an engine."""

    engine: str

    def applied(self) -> dict[int, str]:
        """Number to checksum; empty for a new ledger."""

    def before(self, migration: Migration) -> None:
        """Called before the first migration of a ledger that has data."""

    def list_older_nodes(self, number: int) -> list[str]:
        """Living nodes that do not know this migration, each with its version."""

    def apply(self, pending: Sequence[Migration]) -> None:
        """Run and record them in one transaction."""


_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_ENGINE = re.compile(r"^-- engine: (\w+)\n(.*?)^-- engine: all\n", re.MULTILINE | re.DOTALL)


@cache
def load_migrations(engine: str) -> tuple[Migration, ...]:
    """The migrations that this version ships, by number."""
    found = []
    for source in files("ductile.store").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(source.name)
        if match:
            text = source.read_text(encoding="utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            statements = _split_statements(text, engine)
            found.append(Migration(int(match[1]), match[2], checksum, statements))
    return tuple(sorted(found, key=lambda migration: migration.number))


def _split_statements(text: str, engine: str) -> tuple[str, ...]:
    text = _ENGINE.sub(lambda match: match[2] if match[1] == engine else "", text)
    text = re.sub(r"^\s*--.*\n", "", translate_dialect(text, engine), flags=re.MULTILINE)
    # The body of a trigger or function is on one line: only a `;` at the end of a line separates.
    return tuple(part.strip().rstrip(";") for part in text.split(";\n") if part.strip())


def compare_history(applied: Mapping[int, str], engine: str) -> History:
    """Compare a ledger's migrations, number to checksum, with those of this version."""
    known = {migration.number: migration for migration in load_migrations(engine)}
    history = History([], [m for number, m in known.items() if number not in applied], [])
    for number, checksum in sorted(applied.items()):
        if number not in known:
            history.foreign.append((number, "is of a newer version of ductile; upgrade"))
        elif known[number].checksum != checksum:
            history.foreign.append((number, "differs from the one that this version ships"))
        else:
            history.applied.append(known[number])
    return history


def migrate(
    schema: Schema, keep: Callable[[WaitingMigration | None], None] | None = None
) -> list[Migration]:
    """Apply the pending migrations, and return them; refuse a ledger of a newer version.

    `keep` receives the first migration that has to wait for older nodes, or None.
    """
    history = compare_history(schema.applied(), schema.engine)
    history.check()
    pending, waiting = _split_waiting(schema, history)
    if pending:
        if history.applied:
            schema.before(pending[0])
        schema.apply(pending)
    if keep is not None:
        keep(waiting)
    return pending


@dataclass(frozen=True, slots=True)
class WaitingMigration:
    migration: Migration
    older_nodes: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"migration {self.migration.number:04} ({self.migration.name}) waits until no node of "
            f"an older version runs: {', '.join(self.older_nodes)}"
        )


def _split_waiting(
    schema: Schema, history: History
) -> tuple[list[Migration], WaitingMigration | None]:
    """The migrations to apply now, and the first one that has to wait.

    Raises `LedgerError` if this version needs a migration after one that has to wait.
    """
    for place, migration in enumerate(history.pending):
        if not (migration.is_contract and history.applied):
            continue
        older = schema.list_older_nodes(migration.number)
        if older:
            waiting = WaitingMigration(migration, tuple(older))
            if not all(later.is_contract for later in history.pending[place:]):
                raise LedgerError(f"{waiting}; stop them or upgrade them first")
            return history.pending[:place], waiting
    return history.pending, None
