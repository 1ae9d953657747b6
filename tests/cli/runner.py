"""Run commands: in this process, as a real process, and with a running gateway."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ductile.cli import main
from tests.fork_server import CLI, ForkedProcess
from tests.waiting import WAIT_LIMIT

COMMAND = (sys.executable, "-m", "ductile")
TextProcess = subprocess.Popen[str] | ForkedProcess


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True)
class CliRunner:
    """A configuration in its own directory; calling it runs a command on that configuration."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def state(self) -> Path:
        return self.root / "data"

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        path = self.root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    def plugin(self, name: str, script: str, *, protocol: int = 1, commands: str = "poll") -> Path:
        """Write a plugin in sh; `script` has the request in `$request`."""
        spec = "manifest_spec: ductile.plugin\nmanifest_version: 1\n" if protocol == 2 else ""
        self.write(
            f"plugins/{name}/manifest.yaml",
            f"{spec}name: {name}\nversion: '1'\nprotocol: {protocol}\nentrypoint: run.sh\n"
            f"commands: [{commands}]\n",
        )
        shell = f"#!/bin/sh\nrequest=$(cat)\n{script}\n"
        return self.write(f"plugins/{name}/run.sh", shell, 0o700)

    def __call__(self, *line: str) -> Result:
        """Run a command in this process."""
        self.capsys.readouterr()
        code = main([*line, "--config", str(self.root)])
        out, err = self.capsys.readouterr()
        return Result(code, out, err)

    def process(self, *line: str, input: str = "", env: Mapping[str, str] | None = None) -> Result:
        """Run a command as a process."""
        process = self.start(*line, input=input, env=env)
        out, err = process.communicate(WAIT_LIMIT)
        return Result(process.wait(), out, err)

    def start(
        self, *line: str, input: str = "", env: Mapping[str, str] | None = None
    ) -> ForkedProcess:
        words = [*line, "--config", str(self.root)]
        env = {**os.environ, **(env or {})}
        return ForkedProcess(CLI, *words, env=env, text=True, input=input)

    @contextmanager
    def gateway(self) -> Iterator[ForkedProcess]:
        """Run a gateway; yield when it is ready, and stop it afterwards."""
        process = self.start("system", "start")
        try:
            read_until(process, '"message":"ready"')
            yield process
        finally:
            stop(process)


def run_process(
    *line: str,
    command: tuple[str, ...] = COMMAND[1:],
    input: str = "",
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command as a process and return the finished process."""
    return subprocess.run(
        [sys.executable, *command, *line],
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        env={**os.environ, **(env or {})},
        input=input,
        check=False,
    )


def read_until(process: TextProcess, text: str) -> str:
    """Read the output up to the line that contains `text`; a thread drains the rest."""
    assert process.stdout is not None
    seen = []
    timer = threading.Timer(WAIT_LIMIT, process.kill)
    timer.start()
    try:
        for line in process.stdout:
            seen.append(line)
            if text in line:
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return "".join(seen)
    finally:
        timer.cancel()
    pytest.fail(f"{text!r} was not printed, but: {''.join(seen)}")


def stop(process: TextProcess, how: signal.Signals = signal.SIGTERM) -> int:
    """Send a signal to a process and return its exit code."""
    if process.poll() is None:
        process.send_signal(how)
    try:
        return process.wait(WAIT_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
