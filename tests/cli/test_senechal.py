"""The command line of Senechal Gateway, and the short forms of commands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import House, Result
from tests.waiting import WAIT_LIMIT

BIN = Path(sys.executable).parent
SCHEDULED = """\
service: {name: senechal-gw, shutdown_grace: 0s}
state: {path: ./data/state.db}
plugins_dir: ./plugins
plugins:
  hello: {enabled: true, schedule: {every: 6h, jitter: 30m}}
"""


@pytest.fixture
def program(house: House) -> str:
    """The old name of the same program; all other tests use the new one."""
    house.write("config.yaml", SCHEDULED)
    return "senechal-gw"


def call(house: House, program: str, *line: str) -> Result:
    done = subprocess.run(
        [BIN / program, *line, "--config", str(house.root / "config.yaml")],
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def test_every_command_beside_a_running_gateway(house: House, program: str) -> None:
    with house.gateway():
        run = call(house, program, "run", "hello")
        assert run.code == 0, run.err
        assert "hello poll succeeded" in run.out
        assert "running for" in call(house, program, "status").out
        assert call(house, program, "reload").out == "reloaded\n"
        assert call(house, program, "reset", "hello").out == "hello: no breaker was open\n"
        plugins = call(house, program, "plugins").out
        assert [line.split()[:2] for line in plugins.splitlines()[1:]] == [
            ["bad", "ready"],
            ["hello", "ready"],
        ]
        assert "said hi" in call(house, program, "logs", "hello").out
        assert "said hi" in call(house, program, "logs").out
        assert "0 queued, 0 running" in call(house, program, "queue").out


def test_every_command_without_a_gateway(house: House, program: str) -> None:
    assert call(house, program, "run", "hello").code == 0
    assert "no gateway is running" in call(house, program, "status").out
    assert call(house, program, "reload").code == 1
    assert call(house, program, "reset", "hello").code == 0
    assert call(house, program, "plugins").code == 0
    assert "said hi" in call(house, program, "logs", "hello").out
    assert "0 queued" in call(house, program, "queue").out
    assert call(house, program, "start", "--dry-run").out.startswith("would start")


@pytest.mark.parametrize("line", [("start",), ("system", "start")])
def test_start_runs_in_the_foreground(house: House, program: str, line: tuple[str, ...]) -> None:
    process = subprocess.Popen(
        [BIN / program, *line, "--config", str(house.root)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        ready = next(text for text in process.stdout if '"message":"ready"' in text)
        assert ready
        assert call(house, program, "status").code == 0
    finally:
        process.terminate()
        process.stdout.read()
        process.stdout.close()
    assert process.wait(WAIT_LIMIT) == 0


def test_system_reset_is_the_long_form(house: House, program: str) -> None:
    assert call(house, program, "system", "reset", "hello").code == 0


def help_of(program: str, *line: str) -> str:
    return subprocess.run(
        [BIN / program, *line, "--help"], capture_output=True, text=True, check=True
    ).stdout


def test_called_by_its_old_name_it_tells_of_its_old_commands() -> None:
    text = help_of("senechal-gw")
    assert text.startswith("Usage: senechal-gw ")
    told = [
        line.split()[0] for line in text.partition("Commands:")[2].splitlines() if line[2:3].strip()
    ]
    assert told == ["start", "run", "status", "reload", "reset", "plugins", "logs", "queue"]
    assert "Nouns:" in help_of("ductile")
    assert help_of("senechal-gw", "run").startswith("Usage: senechal-gw run ")


def test_the_unit_of_the_first_specification_starts(house: House, program: str) -> None:
    """`senechal-gw start --config /etc/senechal-gw/config.yaml`, then SIGHUP."""
    config = house.root / "config.yaml"
    line = [str(BIN / program), "start", "--config", str(config)]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True, cwd="/", env=os.environ)
    assert process.stdout is not None
    try:
        assert any('"message":"ready"' in text for text in process.stdout)
        house.write("config.yaml", SCHEDULED.replace("6h", "5m"))
        process.send_signal(1)
        assert any("reload" in text for text in process.stdout)
    finally:
        process.terminate()
        process.stdout.read()
        process.stdout.close()
    assert process.wait(WAIT_LIMIT) == 0
