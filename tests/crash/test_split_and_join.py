"""SIGKILL between any two steps of a split with a join does not change the job tree."""

from __future__ import annotations

import http.client
import json
import os
import select
import shutil
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import apsw
import pytest

from tests.fork_server import CLI, ForkedProcess
from tests.waiting import WAIT_LIMIT, until

STEPS = ["after", "fan.0.step_1", "fan.1.step_1", "fan.2.step_1", "step_1"]
CONFIG = """
service: {max_workers: 2}
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  work: {retry: {max_attempts: 10, backoff_base: 10ms}}
pipelines:
  - name: p
    on: go
    steps:
      - uses: work
      - id: fan
        split: [{uses: work}, {uses: work}, {uses: work}]
      - id: after
        uses: work
"""
MANIFEST = "name: work\nversion: '1'\nprotocol: 1\nentrypoint: run.sh\ncommands: [handle]\n"
SCRIPT = '#!/bin/sh\ncat > /dev/null\necho \'{"status": "ok", "result": "done"}\'\n'


@pytest.fixture
def site() -> Iterator[Path]:
    # The path of a socket may have 107 bytes, and those of pytest's directories are too long.
    folder = Path(tempfile.mkdtemp(prefix="dt-"))
    plugin = folder / "plugins" / "work"
    plugin.mkdir(parents=True, mode=0o755)
    (folder / "config.yaml").write_text(CONFIG)
    (plugin / "manifest.yaml").write_text(MANIFEST)
    (plugin / "run.sh").write_text(SCRIPT)
    (plugin / "run.sh").chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


class Running:
    """A gateway process; `dies_at` sets a failpoint."""

    def __init__(self, site: Path, dies_at: str = "") -> None:
        self.site = site
        env = {**os.environ, "DUCTILE_FAILPOINT": dies_at}
        self.process = ForkedProcess(CLI, "system", "start", "--config", str(site), env=env)
        self.output = self.process.stdout
        self.ready = self._wait_until_ready()

    def _wait_until_ready(self) -> bool:
        return any(json.loads(line)["message"] == "ready" for line in self.output)

    def start_pipeline(self) -> bool:
        """Whether the gateway answered, so that the pipeline is durable."""
        connection = http.client.HTTPConnection("local", timeout=WAIT_LIMIT)
        try:
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.settimeout(WAIT_LIMIT)
            connection.sock.connect(str(self.site / "data" / "ductile.sock"))
            connection.request("POST", "/pipeline/p?async=true", b"{}")
            return connection.getresponse().status == 202
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def alive(self) -> bool:
        readable, _, _ = select.select([self.output], [], [], 0.02)
        if readable:
            self.output.readline()
        return self.process.poll() is None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(WAIT_LIMIT)
        self.process.close()


def rows(site: Path, sql: str) -> list[tuple[object, ...]]:
    path = site / "data" / "state.db"
    if not path.exists():
        return []
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(5000)
    try:
        return connection.execute(sql).fetchall()
    except apsw.SQLError:
        return []
    finally:
        connection.close()


def ended(site: Path) -> bool:
    return rows(site, "SELECT status FROM scopes WHERE split = ''") == [("ended",)]


def run_until(gateway: Running, done: bool = False) -> None:
    until(lambda: not gateway.alive() or ended(gateway.site))
    assert not done or ended(gateway.site)


def crash_once(site: Path, failpoint: str) -> None:
    with Running(site, failpoint) as first:
        accepted = first.ready and first.start_pipeline()
        if accepted:
            run_until(first)
    with Running(site) as again:
        assert again.ready
        if not accepted and not rows(site, "SELECT 1 FROM scopes"):
            assert again.start_pipeline()
        run_until(again, done=True)
    jobs = rows(site, "SELECT step_path, status FROM job_queue ORDER BY step_path")
    assert jobs == [(step, "succeeded") for step in STEPS]
    contexts = rows(site, "SELECT coalesce(step_id, '') FROM event_context ORDER BY 1")
    assert contexts == [("",), *((step,) for step in STEPS)]
    parents = rows(
        site,
        "SELECT c.step_path, p.step_path FROM job_queue c JOIN job_queue p"
        " ON p.id = c.parent_job_id ORDER BY c.step_path",
    )
    assert parents == [(step, "step_1") for step in STEPS[:-1]]
    assert rows(site, "SELECT count(*) FROM scopes WHERE status <> 'ended'") == [(0,)]


# A start makes some twenty commits before the pipeline's own.
FAILPOINTS = [
    *(f"commit.before:{n}" for n in range(20, 32, 2)),
    *(f"commit.after:{n}" for n in range(21, 33, 2)),
    *(f"{name}:{n}" for name in ("claimed", "prepared", "ran", "settled") for n in (1, 3)),
]


SOME_FAILPOINTS = [
    *("commit.before:22", "commit.before:28", "commit.after:23", "commit.after:29"),
    *("claimed:1", "prepared:3", "ran:1", "settled:1", "settled:3"),
]


@pytest.mark.parametrize("failpoint", SOME_FAILPOINTS)
def test_a_crash_neither_loses_nor_duplicates_a_child(site: Path, failpoint: str) -> None:
    crash_once(site, failpoint)


@pytest.mark.torture
@pytest.mark.parametrize("round", range(10))
@pytest.mark.parametrize("failpoint", FAILPOINTS)
def test_torture_neither_loses_nor_duplicates_a_child(
    site: Path, failpoint: str, round: int
) -> None:
    crash_once(site, failpoint)
