"""Numbered migrations, checksummed, in one transaction; SQLite backs itself up first."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Protocol

from ductile.errors import LedgerError
from ductile.record import dataclass
from ductile.store.queries import in_dialect


@dataclass(frozen=True, slots=True)
class Migration:
    number: int
    name: str
    checksum: str
    statements: tuple[str, ...]


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


def migrate(schema: Schema) -> list[Migration]:
    """Bring the ledger forward; refuse one that a newer or another program has written."""
    known = migrations(schema.engine)
    applied = schema.applied()
    for migration in known:
        checksum = applied.get(migration.number)
        if checksum is not None and checksum != migration.checksum:
            raise LedgerError(
                f"migration {migration.number:04} of this ledger differs from the one shipped"
            )
    newer = sorted(set(applied) - {migration.number for migration in known})
    if newer:
        raise LedgerError(
            f"this ledger is of a newer version (migration {newer[-1]:04}); upgrade ductile"
        )
    pending = [migration for migration in known if migration.number not in applied]
    if pending:
        if applied:
            schema.before(pending[0])
        schema.apply(pending)
    return pending
