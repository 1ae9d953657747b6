"""The dashboard: its size, the page in a real browser, and its cost while no page is open."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.web.gateway import DashboardGateway
from tests.web.test_browser import play

from bench import processes
from bench.findings import Check, Findings, table
from bench.gateway import Place, running

WEB = Path(__file__).parents[1] / "web"
SETTLE = 2.0
TARGETS = {
    "200 events per second": 100.0,
    "200 events per second, list of jobs": 100.0,
    "opening and scrolling a log of 10 MB": 50.0,
}
API = """
api:
  enabled: true
  listen: 127.0.0.1:0
  ui: {ui}
  auth: {{tokens: [{{token: token-of-the-benchmark, scopes: ["*"], name: admin}}]}}
"""


def measure(*, quick: bool) -> Findings:
    found = Findings("dashboard")
    found.checks = [
        Check("compressed size before the first lazy part", _size() / 1024, "KB", at_most=60.0),
        *_browser_checks(),
        *_idle_checks(3.0 if quick else 10.0),
    ]
    return found


def _size() -> int:
    """Return the bytes that a browser loads before the first lazy part."""
    printed = _output("node", str(WEB / "scripts" / "check-size.mjs"))
    return int(_group(r"(\d+)\s+before the first lazy", printed))


def _browser_checks() -> list[Check]:
    """The longest task of the main thread; the scenario also asserts that an idle page is idle."""
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    gateway = DashboardGateway(folder)
    try:
        gateway.start()
        printed = play("performance", gateway)
    finally:
        gateway.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return [
        Check(
            f"longest task, {what}",
            float(_group(rf"longest task, {what}: (\d+) ms", printed)),
            "ms",
            at_most=most,
        )
        for what, most in TARGETS.items()
    ]


def _idle_checks(seconds: float) -> list[Check]:
    """Compare gateways with and without the dashboard that run at the same time."""
    places = [Place(more=API.format(ui=ui)) for ui in ("true", "false")]
    with running(places[0]) as enabled, running(places[1]) as disabled:
        time.sleep(SETTLE)
        families = [gateway.family() for gateway in (enabled, disabled)]
        before = [sum(map(processes.cpu, family)) for family in families]
        began = time.monotonic()
        time.sleep(seconds)
        took = time.monotonic() - began
        used = [
            (sum(map(processes.cpu, family)) - at) / took * 100
            for family, at in zip(families, before, strict=True)
        ]
        memory = [sum(map(processes.pss, family)) / 1e6 for family in families]
    rows = [
        {"dashboard": name, "PSS MB": size, "CPU %": cpu}
        for name, size, cpu in zip(("enabled", "disabled"), memory, used, strict=True)
    ]
    print(table(rows))
    return [
        Check("memory with the dashboard, ratio to without", memory[0] / memory[1], at_most=1.02),
        Check("CPU of an idle gateway with the dashboard", used[0], "%", at_most=1.0),
        Check("CPU of an idle gateway without it", used[1], "%"),
    ]


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=WEB, check=True, capture_output=True, text=True).stdout


def _group(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    assert found, f"{pattern} is not in: {text}"
    return found[1]
