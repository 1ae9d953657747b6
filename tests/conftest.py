"""What the whole suite shares: a fake clock, ids that count up, a PostgreSQL server."""

from __future__ import annotations

import gc
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, settings

from tests.compile_once import compile_tests
from tests.fast_directory import use_fast_directory
from tests.postgres import Server, a_server

# The time that an example takes depends on the machine, not on the code.
settings.register_profile(
    "ours", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ours")
use_fast_directory()
# A suite started in the background ignores SIGINT, and every program it starts would too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    compile_tests(config.args)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests of the dashboard: most workers would wait for the browser at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/web/"))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Limit the cleanup of a failed test: pytest-timeout ends its own limit at the failure."""
    if signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        yield
        return
    limit = float(item.config.getini("timeout"))

    def expire(*_: object) -> None:
        pytest.fail(f"the cleanup took longer than {limit} s")

    previous = signal.signal(signal.SIGALRM, expire)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


class FakeClock:
    """A clock that moves only when a test advances it."""

    def __init__(self, start: datetime | None = None) -> None:
        self.moment = start or datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
        self.elapsed = 0.0

    def now(self) -> datetime:
        return self.moment

    def monotonic(self) -> float:
        return self.elapsed

    def wait(self, wake: threading.Event, timeout: float) -> bool:
        if wake.is_set():
            return True
        self.advance(timeout)
        return False

    def advance(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)
        self.elapsed += seconds


class CountingEntropy:
    """Ids that count up, and chance that is always in the middle."""

    def __init__(self, chance: float = 0.5) -> None:
        self.count = 0
        self.chance = chance

    def uuid(self) -> str:
        self.count += 1
        return f"00000000-0000-7000-8000-{self.count:012}"

    def uniform(self) -> float:
        return self.chance


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def entropy() -> CountingEntropy:
    return CountingEntropy()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """One for all of a worker's tests: to set it up takes seconds, a database of it moments."""
    with a_server() as server:
        yield server


@pytest.fixture
def url(postgres: Server) -> str:
    """A new database on PostgreSQL."""
    return postgres.database()
