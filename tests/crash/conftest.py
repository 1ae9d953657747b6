from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.life import Life, trace
from tests.engine.site import OK, Site
from tests.waiting import until


@pytest.fixture
def site() -> Iterator[Site]:
    """With one plugin, which leaves a line in a file of its job's whenever it runs."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    site = Site(folder)
    (folder / "ran").mkdir()
    site.settings["service"]["log_level"] = "info"
    site.plugin(
        "work",
        trace(site) + OK,
        retry={"max_attempts": 4, "backoff_base": "20ms"},
    )
    yield site
    site.close()
    until(lambda: site.alive() == [])
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def live(site: Site) -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def live(failpoint: str | None = None) -> Life:
        lives.append(Life(site, failpoint))
        return lives[-1]

    yield live
    for life in lives:
        life.end()
