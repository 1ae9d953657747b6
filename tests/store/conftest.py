"""Fixtures that run a test on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from tests.new_ledger import create_ledger


def execute(ledger: Ledger, sql: str) -> list[Any]:
    """Run SQL on a separate connection, as a script would; returns its rows."""
    if isinstance(ledger, SqliteLedger):
        connection = apsw.Connection(str(ledger.path))
        connection.set_busy_timeout(5000)
        rows = connection.execute(sql).fetchall()
        connection.close()
        return rows
    assert isinstance(ledger, PostgresLedger)
    with psycopg.connect(ledger.url) as server:
        cursor = server.execute(sql)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=["sqlite", "postgres"])
def open_ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
    """Opens the ledger of the test, as often as it is called."""
    opened: list[Ledger] = []
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").database()
    else:
        create_ledger(tmp_path / "state.db")

    def open_it() -> Ledger:
        ledger: Ledger = (
            SqliteLedger(tmp_path / "state.db")
            if request.param == "sqlite"
            else PostgresLedger(url)
        )
        ledger.start()
        opened.append(ledger)
        return ledger

    yield open_it
    for ledger in opened:
        ledger.close()


@pytest.fixture
def ledger(open_ledger: Callable[[], Ledger]) -> Ledger:
    return open_ledger()
