"""The dashboard in a real browser, against a real gateway.

Each scenario is a program in `web/browser/`. The tests need Debian's Chromium, Node, and the tools
that `make web` installs; without them they are skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import WAIT_LIMIT
from tests.web.gateway import ADMIN_TOKEN, READER_TOKEN, DashboardGateway

BROWSER = Path(__file__).parents[2] / "web" / "browser"
CHROMIUM = os.environ.get("CHROMIUM", "/usr/bin/chromium")
TOOLS = BROWSER.parent / "node_modules" / "playwright-core"

pytestmark = pytest.mark.skipif(
    not (Path(CHROMIUM).exists() and shutil.which("node") and TOOLS.exists()),
    reason="needs chromium, node and `make web`",
)


@pytest.fixture
def gateway() -> Iterator[DashboardGateway]:
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    gateway = DashboardGateway(folder)
    try:
        gateway.start()
        yield gateway
    finally:
        gateway.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def browser() -> Iterator[str]:
    """The address of a browser for all scenarios: each has a context of its own in it."""
    with subprocess.Popen(
        ["node", str(BROWSER / "serve.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(WAIT_LIMIT)


def play(scenario: str, gateway: DashboardGateway, **environ: str) -> str:
    """Run a scenario, do what it asks for on its output, and return the output."""
    environ = {
        **os.environ,
        **environ,
        "DUCTILE_URL": gateway.url,
        "DUCTILE_ADMIN_TOKEN": ADMIN_TOKEN,
        "DUCTILE_READER_TOKEN": READER_TOKEN,
    }
    with subprocess.Popen(
        ["node", str(BROWSER / f"{scenario}.mjs")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environ,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        printed = []
        try:
            for line in process.stdout:
                printed.append(line)
                if line.startswith("@"):
                    process.stdin.write(f"{_answer(line[1:].strip(), gateway)}\n")
                    process.stdin.flush()
            code = process.wait()
        finally:
            if process.poll() is None:
                process.kill()
    assert code == 0, "".join(printed)
    return "".join(printed)


def _answer(request: str, gateway: DashboardGateway) -> str:
    if request == "code":
        return gateway.create_login_code()
    if request == "trigger":
        return gateway.trigger()
    if request == "break":
        gateway.break_configuration()
    elif request == "kill":
        gateway.stop(signal.SIGKILL)
    elif request == "start":
        gateway.start()
    return "done"


@pytest.mark.parametrize(
    "scenario",
    [
        "log-in",
        "watch-job",
        "progress",
        "retry-job",
        "bulk-action",
        "configuration",
        "pause-schedule",
        "pause-plugin",
        "approve",
        "alerts",
        "actions",
        "try-plugin",
        "job-filters",
        "reconnect",
        "cross-site",
        "keyboard",
        "revoke-token",
        "end-sessions",
        "health-check",
        "outcomes",
    ],
)
def test_scenario(scenario: str, gateway: DashboardGateway, browser: str) -> None:
    play(scenario, gateway, DUCTILE_BROWSER=browser)


@pytest.mark.parametrize("scenario", ["read-only", "accessibility"])
def test_every_screen(scenario: str, gateway: DashboardGateway, browser: str) -> None:
    gateway.seed()
    play(scenario, gateway, DUCTILE_BROWSER=browser)


def test_idle_page_sends_nothing_and_shows_part_of_a_long_log(
    gateway: DashboardGateway, browser: str
) -> None:
    play("performance", gateway, DUCTILE_BROWSER=browser)


@pytest.mark.torture
def test_long_log_and_many_events_leave_the_page_responsive(gateway: DashboardGateway) -> None:
    play("performance", gateway, DUCTILE_MEASURE="1")
