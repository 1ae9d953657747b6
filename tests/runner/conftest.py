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
    """Two slots. They end before it is asked what is left of the plugins."""
    pool = RunnerPool(2)
    pool.start()
    yield pool
    pool.stop()


@pytest.fixture
def run(pool: RunnerPool, plugins: Plugins) -> Callable[..., Outcome]:
    """Run a plugin in slot 0, and see that nothing of it is left when its outcome comes."""

    def run(*argv: str, **options: object) -> Outcome:
        outcome = pool.slot(0).run(plugins.launch(*argv, **options))  # type: ignore[arg-type]
        assert plugins.alive() == []
        return outcome

    return run


Begin = Callable[[SlotClient, Launch], Future[Outcome]]


@pytest.fixture
def begin_on() -> Iterator[Begin]:
    """Run on a thread of its own; the future holds the outcome."""
    with ThreadPoolExecutor(4) as threads:
        yield lambda slot, launch: threads.submit(slot.run, launch)


@pytest.fixture
def begin(begin_on: Begin, pool: RunnerPool) -> Iterator[Begin]:
    """The same on the slots of `pool`; a test that failed half way waits for no job."""
    yield begin_on
    pool.stop()


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Fifo]:
    fifo = Fifo(tmp_path / "fifo")
    yield fifo
    fifo.close()
