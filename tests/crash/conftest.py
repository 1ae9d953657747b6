from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.gateway_process import GatewayProcess, record_run
from tests.engine.conftest import another  # noqa: F401 - a fixture
from tests.engine.site import OK, Site
from tests.waiting import until


@pytest.fixture
def site() -> Iterator[Site]:
    """With one plugin, which adds a line to a file of its job whenever it runs."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    site = Site(folder)
    (folder / "ran").mkdir()
    site.settings["service"]["log_level"] = "info"
    site.plugin(
        "work",
        record_run(site) + OK,
        retry={"max_attempts": 4, "backoff_base": "20ms"},
    )
    yield site
    site.close()
    until(lambda: site.alive() == [])
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def start_gateway(site: Site) -> Iterator[Callable[..., GatewayProcess]]:
    processes: list[GatewayProcess] = []

    def start_gateway(failpoint: str | None = None) -> GatewayProcess:
        processes.append(GatewayProcess(site, failpoint))
        return processes[-1]

    yield start_gateway
    for process in processes:
        process.end()
