"""A gateway in a process of its own: started, used over its socket, killed."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.site import Site
from tests.fork_server import ForkedProcess
from tests.http.client import Client
from tests.waiting import WAIT_LIMIT

DRIVER = Path(__file__).with_name("driver.py")


def record_run(site: Site) -> str:
    """Shell code that adds a line to a file of the job."""
    return (
        """id=$(sed 's/.*"job_id":"\\([^"]*\\)".*/\\1/')\n"""
        f"echo x >> {site.folder}/ran/$id\n"
    )


def _start(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes] | ForkedProcess:
    """A gateway of the version that `PYTHONPATH` of `env` names; by default of this one."""
    if "PYTHONPATH" not in env:
        return ForkedProcess("tests.crash.driver:main", str(folder), env=env)
    return subprocess.Popen(
        [sys.executable, str(DRIVER), str(folder)],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


class GatewayProcess:
    """The process, and the log lines that it has written."""

    def __init__(self, site: Site, failpoint: str | None = None) -> None:
        site.write()
        site.prepare_ledger()
        env = dict(site.environ)
        if failpoint is not None:
            env["DUCTILE_FAILPOINT"] = failpoint
        self.process = _start(site.folder, env)
        self.client = Client(site.state / "ductile.sock", timeout=WAIT_LIMIT)
        self.lines: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._errors = b""
        self._drain = threading.Thread(target=self._read_errors, daemon=True)
        self._drain.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._changed:
                try:
                    self.lines.append(json.loads(line))
                except ValueError:
                    self.lines.append({"message": line.decode("utf-8", "replace")})
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self._errors = self.process.stderr.read()

    def wait_for_log(self, message: str) -> dict[str, Any]:
        """The first log line with this message, written or still to come."""

        def found() -> dict[str, Any] | None:
            return next((line for line in self.lines if line.get("message") == message), None)

        with self._changed:
            self._changed.wait_for(lambda: found() or self._ended, WAIT_LIMIT)
            line = found()
        assert line is not None, (message, self.lines[-5:], self.process.poll(), self._errors)
        return line

    def ready(self) -> GatewayProcess:
        self.wait_for_log("ready")
        return self

    def put(self, plugin: str = "work", **body: Any) -> str:
        answer = self.client.post(f"/plugin/{plugin}/poll", body)
        assert answer.status == 202, answer.body
        return str(answer.json["job_id"])

    def kill(self) -> None:
        """SIGKILL; waits for the end of this process, not of its runner."""
        self.process.kill()
        self.wait()

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        try:
            code = self.process.wait(WAIT_LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"it still runs: {self.lines[-5:]}, {self._errors!r}")
        self._reader.join(WAIT_LIMIT)
        self._drain.join(WAIT_LIMIT)
        return code

    def end(self) -> None:
        """Kill the process if it runs, in any state."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(WAIT_LIMIT)
        self._drain.join(WAIT_LIMIT)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


class Producer:
    """Puts jobs until the gateway has ended, and records which were accepted."""

    def __init__(self, gateway: GatewayProcess, limit: int = 200) -> None:
        self.accepted: list[str] = []
        self._gateway, self._limit = gateway, limit
        self._thread = threading.Thread(target=self._work)
        self._thread.start()

    def _work(self) -> None:
        give_up = time.monotonic() + WAIT_LIMIT
        while len(self.accepted) < self._limit and time.monotonic() < give_up:
            try:
                self.accepted.append(self._gateway.put())
            except (OSError, http.client.HTTPException):
                if self._gateway.process.poll() is not None:
                    return
                # Not listening yet.
                time.sleep(0.005)

    def stop(self) -> list[str]:
        self._thread.join(WAIT_LIMIT)
        return self.accepted
