from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from ductile.model import Launch, Outcome
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from tests.runner.processes import Fifo, Plugins


@pytest.fixture
def plugins(tmp_path: Path) -> Iterator[Plugins]:
    made = Plugins(tmp_path)
    yield made
    assert made.alive() == []


@pytest.fixture
def pool(plugins: Plugins) -> Iterator[RunnerPool]:
    """Two slots, which end before `plugins` checks for processes that are left."""
    pool = RunnerPool(2)
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture
def run(pool: RunnerPool, plugins: Plugins) -> Callable[..., Outcome]:
    """Run a plugin in slot 0, and check that no process of it is left with its outcome."""

    def run(*argv: str, **options: object) -> Outcome:
        outcome = pool.slot(0).run(plugins.launch(*argv, **options))  # type: ignore[arg-type]
        assert plugins.alive() == []
        return outcome

    return run


Start = Callable[[SlotClient, Launch], Future[Outcome]]


@pytest.fixture
def start_on() -> Iterator[Start]:
    """Run a launch in a thread; the future has the outcome."""
    with ThreadPoolExecutor(4) as threads:
        yield lambda slot, launch: threads.submit(slot.run, launch)


@pytest.fixture
def start(start_on: Start, pool: RunnerPool) -> Iterator[Start]:
    """The same on the slots of `pool`, which is stopped when the test fails."""
    yield start_on
    pool.stop()


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    fifo = Fifo(tmp_path / "fifo")
    yield fifo
    fifo.close()
