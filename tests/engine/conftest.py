from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.clockwork import Clockwork
from tests.engine.site import OK, Site
from tests.waiting import until


@pytest.fixture
def site() -> Iterator[Site]:
    """In a short path: a unix socket's holds 107 bytes. Nothing of it outlives the test."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    site = Site(folder)
    yield site
    site.close()
    left = site.alive()
    shutil.rmtree(folder, ignore_errors=True)
    assert left == []


@pytest.fixture
def another() -> Iterator[Callable[[], Site]]:
    """Makes further sites, for gateways that run beside each other."""
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
def make(site: Site) -> Iterator[Callable[..., Clockwork]]:
    """A clockwork whose one plugin has these schedules."""
    made: list[Clockwork] = []

    def make(*entries: dict[str, Any], **settings: Any) -> Clockwork:
        site.plugin("echo", OK, schedules=list(entries), retry={"max_attempts": 1}, **settings)
        made.append(Clockwork(site))
        return made[-1]

    yield make
    for work in made:
        work.ledger.close()
