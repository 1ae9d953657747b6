"""`docs/reference/database.md` documents every table and column of the migrations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ductile.store.engines.api import Ledger

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "database.md"


def documented() -> dict[str, set[str]]:
    sections = re.split(r"^### (\w+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {
        name: {
            column
            for row in re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
            for column in re.findall(r"`(\w+)`", row)
        }
        for name, text in zip(sections[1::2], sections[2::2], strict=True)
    }


@pytest.fixture
def tables(ledger: Ledger) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for kind, table, column in ledger.read(lambda tx: tx.all("schema_objects")):
        if kind == "table":
            found.setdefault(table, set()).add(column)
    return found


def test_every_table_and_column_is_documented(tables: dict[str, set[str]]) -> None:
    listed = documented()
    assert listed.keys() == tables.keys()
    assert {
        name: tables[name] ^ listed[name] for name in listed if tables[name] != listed[name]
    } == {}
