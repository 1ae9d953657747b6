from __future__ import annotations

import pytest

from ductile.log import configure
from ductile.store.engines.api import Ledger
from tests.agents.house import House, Log
from tests.conftest import FakeClock
from tests.store.conftest import ledger, open_ledger  # noqa: F401 - fixtures


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock) -> House:  # noqa: F811
    configure("info", "json")
    return House(ledger, clock)


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> Log:
    return Log(capsys)
