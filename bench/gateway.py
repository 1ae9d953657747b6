"""A gateway of the user's kind: a process of its own, on a directory of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import count
from pathlib import Path

from bench import processes
from bench.programs import programs, scratch

READY_PATIENCE = 20.0
LOOK_EVERY = 0.002
_numbers = count()


class Place:
    """A configuration and the state directory that it names."""

    def __init__(
        self, *, workers: int | None = None, url: str | None = None, more: str = ""
    ) -> None:
        self.directory = scratch() / f"gateway-{next(_numbers)}"
        self.directory.mkdir(mode=0o700)
        self.state_dir = self.directory / "data"
        self.ledger = self.state_dir / "state.db"
        self.url = url
        lines = ["state:", f"  url: {url}" if url else "  path: ./data/state.db"]
        if url:
            lines.append("  dir: ./data")
        lines += ["plugin_roots:", f"  - {programs().plugin_root}"]
        if workers is not None:
            lines += ["service:", f"  max_workers: {workers}"]
        config = self.directory / "config.yaml"
        config.write_text("\n".join(lines) + "\n" + more)
        config.chmod(0o600)

    @property
    def socket(self) -> Path:
        return self.state_dir / "ductile.sock"


class Gateway:
    """The running process; its output goes to a file next to its config."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._log = (place.directory / "log").open("wb")
        self.began = time.perf_counter()
        self._process = subprocess.Popen(
            command(place), env=environment(), stdout=self._log, stderr=self._log
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def family(self) -> list[int]:
        """The gateway, its runner and its slots, without the plugins that run below them."""
        own = processes.program(self.pid)
        below = processes.descendants(self.pid)
        return [self.pid, *[pid for pid in below if processes.program(pid) == own]]

    def until_ready(self) -> float:
        """Seconds from the process's start until its socket answers."""
        give_up = self.began + READY_PATIENCE
        while not healthy(self.place.socket):
            if self._process.poll() is not None or time.perf_counter() > give_up:
                log = (self.place.directory / "log").read_text()
                raise RuntimeError(f"the gateway did not become ready:\n{log[-4000:]}")
            time.sleep(LOOK_EVERY)
        return time.perf_counter() - self.began

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._log.close()


@contextmanager
def running(place: Place) -> Iterator[Gateway]:
    """A gateway that answers, until the block ends."""
    gateway = Gateway(place)
    try:
        gateway.until_ready()
        yield gateway
    finally:
        gateway.stop()


def command(place: Place) -> list[str]:
    if has_cli():
        return [str(executable()), "system", "start", "--config", str(place.directory)]
    # -P: this directory is not where the gateway should look for its modules.
    driver = Path(__file__).with_name("driver.py")
    return [sys.executable, "-P", str(driver), str(place.directory)]


def executable() -> Path:
    return Path(sys.executable).with_name("ductile")


@cache
def has_cli() -> bool:
    try:
        done = subprocess.run(
            [str(executable()), "system", "start", "--help"],
            env=environment(),
            capture_output=True,
            check=False,
        )
    except OSError:
        return False
    return done.returncode == 0


def environment() -> dict[str, str]:
    """As an installed program has it: with bytecode, whatever this shell says."""
    without = {"PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    return {name: value for name, value in os.environ.items() if name not in without}


def healthy(path: Path) -> bool:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(5)
            line.connect(str(path))
            line.sendall(b"GET /healthz HTTP/1.1\r\nHost: ductile\r\nConnection: close\r\n\r\n")
            return line.recv(4096).startswith(b"HTTP/1.1 200")
    except OSError:
        return False


@cache
def warm() -> None:
    """Have the bytecode of everything written, so that no measurement pays for it."""
    with running(Place()):
        pass
