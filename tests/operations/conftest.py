from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import another, make_scheduler, site  # noqa: F401 - fixtures
from tests.engine.site import OK, Site
from tests.operations.ledger_copies import on_postgres


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, site: Site) -> Site:  # noqa: F811
    """A site with one plugin, on each engine."""
    if request.param == "postgres":
        on_postgres(site, request.getfixturevalue("postgres"))
    site.plugin("echo", OK)
    return site


@pytest.fixture
def folder(site: Site) -> Path:  # noqa: F811
    found = site.folder / "copies"
    found.mkdir()
    return found
