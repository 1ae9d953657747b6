"""Numbered migrations, checksummed, in one transaction; SQLite backs itself up first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Protocol

from ductile.errors import LedgerError
from ductile.record import dataclass
from ductile.store.engines.queries import in_dialect

HISTORY = "schema_migrations"
HISTORY_DDL = (
    f"CREATE TABLE IF NOT EXISTS {HISTORY} "
    "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
)


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    checksum: str
    statements: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The migrations of a ledger, held against those that this program ships."""

    applied: list[Migration]
    pending: list[Migration]
    foreign: list[tuple[int, str]]
    """What a newer or another program has applied, and how each is not ours."""

    def check(self) -> None:
        """`LedgerError` where a newer or another program has written the ledger."""
        if self.foreign:
            number, how = self.foreign[-1]
            raise LedgerError(f"migration {number:04} of the ledger {how}")


class Schema(Protocol):
    """What an engine offers to the migrations."""

    engine: str

    def applied(self) -> dict[int, str]:
        """Number to checksum; nothing where the ledger is new."""

    def before(self, migration: Migration) -> None:
        """Called before the first migration of a ledger that has data."""

    def apply(self, pending: Sequence[Migration]) -> None:
        """Run and record them, all in one transaction."""


_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_ENGINE = re.compile(r"^-- engine: (\w+)\n(.*?)^-- engine: all\n", re.MULTILINE | re.DOTALL)


def migrations(engine: str) -> list[Migration]:
    found = []
    for source in files("ductile.store").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(source.name)
        if match:
            text = source.read_text(encoding="utf-8")
            checksum = hashlib.sha256(text.encode()).hexdigest()
            statements = _statements(text, engine)
            found.append(Migration(int(match[1]), match[2], checksum, statements))
    return sorted(found, key=lambda migration: migration.number)


def _statements(text: str, engine: str) -> tuple[str, ...]:
    text = _ENGINE.sub(lambda match: match[2] if match[1] == engine else "", text)
    text = re.sub(r"^\s*--.*\n", "", in_dialect(text, engine), flags=re.MULTILINE)
    # A trigger's or function's body stands on one line: only a `;` at a line's end divides.
    return tuple(part.strip().rstrip(";") for part in text.split(";\n") if part.strip())


def judged(applied: Mapping[int, str], engine: str) -> History:
    """What a ledger's history, number to checksum, is to this program."""
    known = {migration.number: migration for migration in migrations(engine)}
    history = History([], [m for number, m in known.items() if number not in applied], [])
    for number, checksum in sorted(applied.items()):
        if number not in known:
            history.foreign.append((number, "is of a newer version of ductile; upgrade"))
        elif known[number].checksum != checksum:
            history.foreign.append((number, "differs from the one that this version ships"))
        else:
            history.applied.append(known[number])
    return history


def migrate(schema: Schema) -> list[Migration]:
    """Bring the ledger forward; refuse one that a newer or another program has written."""
    history = judged(schema.applied(), schema.engine)
    history.check()
    if history.pending:
        if history.applied:
            schema.before(history.pending[0])
        schema.apply(history.pending)
    return history.pending
