"""`senechal-gw`, the name of the first version: its commands are our short forms."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.runner import CliRunner, Result, stop
from tests.waiting import WAIT_LIMIT

BIN = Path(sys.executable).parent
PROGRAM = BIN / "senechal-gw"
COMMANDS = ["start", "run", "status", "reload", "reset", "plugins", "logs", "queue"]
SCHEDULED = """\
service: {name: senechal-gw, shutdown_grace: 0s}
state: {path: ./data/state.db}
plugins_dir: ./plugins
plugins:
  hello: {enabled: true, schedule: {every: 6h, jitter: 30m}}
"""


@pytest.fixture
def scheduled(cli: CliRunner) -> CliRunner:
    """A configuration in the format of the first version."""
    cli.write("config.yaml", SCHEDULED)
    return cli


def call(cli: CliRunner, *line: str) -> Result:
    done = subprocess.run(
        [PROGRAM, *line, "--config", str(cli.root / "config.yaml")],
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_every_command_with_a_running_gateway(scheduled: CliRunner) -> None:
    with scheduled.gateway():
        run = call(scheduled, "run", "hello")
        assert run.code == 0, run.err
        assert "hello poll succeeded" in run.out
        assert "running for" in call(scheduled, "status").out
        assert call(scheduled, "reload").out == "reloaded\n"
        assert call(scheduled, "reset", "hello").out == "hello: no breaker was open\n"
        plugins = call(scheduled, "plugins").out
        assert [line.split()[:2] for line in plugins.splitlines()[1:]] == [
            ["bad", "ready"],
            ["hello", "ready"],
        ]
        assert "said hi" in call(scheduled, "logs", "hello").out
        assert "0 queued, 0 running" in call(scheduled, "queue").out


def test_every_command_without_a_gateway(scheduled: CliRunner) -> None:
    """In this process: the program is a name for the same function."""
    assert scheduled("run", "hello").code == 0
    assert "no gateway is running" in scheduled("status").out
    assert scheduled("reload").code == 1
    assert scheduled("reset", "hello").code == 0
    assert scheduled("plugins").code == 0
    assert "said hi" in scheduled("logs", "hello").out
    assert "0 queued" in scheduled("queue").out
    assert scheduled("start", "--dry-run").out.startswith("would start")


def test_help_of_senechal_gw_lists_its_commands() -> None:
    text = help_of(PROGRAM)
    assert text.startswith("Usage: senechal-gw ")
    listed = text.partition("Commands:")[2].splitlines()
    assert [line.split()[0] for line in listed if line[2:3].strip()] == COMMANDS
    assert "Nouns:" in help_of(BIN / "ductile")


def help_of(program: Path) -> str:
    return subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout


def test_start_runs_in_the_foreground_and_reloads_on_sighup(scheduled: CliRunner) -> None:
    with started(scheduled) as process:
        assert process.stdout is not None
        assert any('"message":"ready"' in text for text in process.stdout)
        scheduled.write("config.yaml", SCHEDULED.replace("6h", "5m"))
        process.send_signal(signal.SIGHUP)
        assert any("reload" in text for text in process.stdout)


@contextmanager
def started(cli: CliRunner) -> Iterator[subprocess.Popen[str]]:
    line = [str(PROGRAM), "start", "--config", str(cli.root / "config.yaml")]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd="/", env=os.environ)
    try:
        yield process
    finally:
        assert stop(process) == 0
