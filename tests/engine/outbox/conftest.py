from __future__ import annotations

from collections.abc import Iterator

import pytest

from ductile.store.engines.api import Ledger
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.engines.sqlite import SqliteLedger
from tests.engine.site import Site


@pytest.fixture
def ledger(request: pytest.FixtureRequest, site: Site) -> Iterator[Ledger]:
    """On SQLite, or where the test's `on_postgres` or `on_both` mark says."""
    opened: Ledger = (
        PostgresLedger(request.getfixturevalue("postgres").database())
        if getattr(request, "param", "sqlite") == "postgres"
        else SqliteLedger(site.state / "state.db")
    )
    opened.start()
    yield opened
    opened.close()
