"""Plugins as scripts, lines that running ones write, and the processes that are left of them."""

from __future__ import annotations

import os
import select
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from ductile.model import Launch
from ductile.runner.process_scan import has_variable
from tests.waiting import WAIT_LIMIT

PYTHON = f"#!{sys.executable} -IS\nimport os, signal, sys, time\n"
SHELL = "#!/bin/sh\n"
BY_THEN = 5.0
"""A deadline by which a plugin has written its first line, on a busy machine too."""


def descriptors() -> Counter[str]:
    """The open descriptors of this process, to be compared with those before: the garbage collector
    may close descriptors of earlier tests at any time."""
    return Counter(os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd"))


class Fifo:
    """Reads the lines that a plugin writes while it runs."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        # For reading and writing, so that neither side waits for the other to open it.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        self._received = b""

    def line(self) -> str:
        while b"\n" not in self._received:
            assert select.select([self._fd], [], [], WAIT_LIMIT)[0], "the plugin wrote nothing"
            self._received += os.read(self._fd, 4096)
        line, _, self._received = self._received.partition(b"\n")
        return line.decode()

    def number(self) -> int:
        return int(self.line())

    def close(self) -> None:
        os.close(self._fd)


class Plugins:
    """Writes plugins, makes their launches, and finds their processes by a mark."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = uuid.uuid4().hex
        self.env = {"PATH": os.environ["PATH"], "DUCTILE_BOOT": f"{self.marker}:1"}

    def script(self, text: str, name: str = "plugin") -> str:
        path = self.folder / name
        path.write_bytes(text.encode())
        path.chmod(0o755)
        return str(path)

    def shell(self, text: str) -> str:
        return self.script(SHELL + text, f"{uuid.uuid4().hex}.sh")

    def python(self, text: str) -> str:
        return self.script(PYTHON + text, f"{uuid.uuid4().hex}.py")

    def launch(
        self,
        *argv: str,
        request: bytes = b"",
        timeout: float = 3600.0,
        env: Mapping[str, str] | None = None,
        **more: float,
    ) -> Launch:
        return Launch(argv, self.env if env is None else env, request, timeout, **more)  # type: ignore[arg-type]

    def alive(self) -> list[int]:
        entry = f"DUCTILE_BOOT={self.marker}:".encode()
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return [pid for pid in pids if has_variable(pid, entry)]
