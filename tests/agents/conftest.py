from __future__ import annotations

import pytest

from ductile.log import configure
from ductile.store.engines.api import Ledger
from tests.agents.harness import AgentsHarness, LogCapture
from tests.conftest import FakeClock
from tests.store.conftest import ledger, open_ledger  # noqa: F401 - fixtures


@pytest.fixture
def harness(ledger: Ledger, clock: FakeClock) -> AgentsHarness:  # noqa: F811
    configure("info", "json")
    return AgentsHarness(ledger, clock)


@pytest.fixture
def log(capsys: pytest.CaptureFixture[str]) -> LogCapture:
    return LogCapture(capsys)
