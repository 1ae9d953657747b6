from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.scheduling.harness import SchedulerHarness
from tests.engine.site import OK, Site
from tests.waiting import until


@pytest.fixture
def site() -> Iterator[Site]:
    """An installation in a short path, because that of a unix socket has at most 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    site = Site(folder)
    yield site
    site.close()
    left = site.alive()
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture
def another() -> Iterator[Callable[[], Site]]:
    """Makes further installations, for several gateways at a time."""
    made: list[Site] = []

    def another() -> Site:
        made.append(Site(Path(tempfile.mkdtemp(prefix="dt-"))))
        return made[-1]

    yield another
    for site in made:
        site.close()
        until(lambda site=site: site.alive() == [])  # type: ignore[misc]
        shutil.rmtree(site.folder, ignore_errors=True)


@pytest.fixture
def make_scheduler(site: Site) -> Iterator[Callable[..., SchedulerHarness]]:
    """Makes a scheduler for one plugin with these schedules."""
    made: list[SchedulerHarness] = []

    def make_scheduler(*entries: dict[str, Any], **settings: Any) -> SchedulerHarness:
        site.plugin("echo", OK, schedules=list(entries), retry={"max_attempts": 1}, **settings)
        made.append(SchedulerHarness(site))
        return made[-1]

    yield make_scheduler
    for harness in made:
        harness.ledger.close()
