"""A shell that executes the commands of a page in a temporary directory."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.docs.page import Command, output_matches
from tests.fork_server import write_launcher
from tests.ports import find_free_port
from tests.waiting import WAIT_LIMIT, until

PORTS = ("4318", "8080", "8081", "8082", "9090")
"""Ports that pages use; each is replaced by a free one."""
_END = "-- end of command --"


class Session:
    """Bash with `ductile` on its path and an empty home directory.

    With `forked`, `ductile` is a program that has the fork server of the tests run each command.
    """

    def __init__(self, folder: Path, *, forked: bool = False) -> None:
        self.folder = folder
        self._ports = {port: str(find_free_port()) for port in PORTS}
        programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
        if forked:
            launchers = folder / ".bin"
            launchers.mkdir()
            write_launcher(launchers / "ductile")
            programs.insert(0, str(launchers))
        env = {
            "PATH": os.pathsep.join(programs),
            "HOME": str(folder),
            "TMPDIR": str(folder),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "NO_COLOR": "1",
        }
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started = 0

    def check(self, command: Command, page: str) -> None:
        """Run the command; fail unless exit code and output are as the page shows them."""
        code, printed = self.run(command)
        where = f"{page}:{command.line}: {command.text}"
        assert code == command.code, f"{where}\nexit code {code}, and:\n{printed}"
        expected = "\n".join(command.printed)
        assert output_matches(command.printed, printed), (
            f"{where}\nprinted:\n{printed}\ninstead of:\n{expected}"
        )

    def run(self, command: Command) -> tuple[int, str]:
        """Return the exit code and the output."""
        text = command.text
        for port, free in self._ports.items():
            text = text.replace(f":{port}", f":{free}")
        if command.is_background:
            return self._start(text)
        return self._type(text)

    def _start(self, text: str) -> tuple[int, str]:
        """Run in the background; for a gateway, wait until it is ready."""
        self._started += 1
        log = self.folder / f".background-{self._started}.log"
        log.touch()
        code, printed = self._type(f"{text.rstrip().removesuffix('&')} > {log} 2>&1 &")
        if "system start" in text:
            until(lambda: "ready" in log.read_text())
        return code, printed

    def _type(self, text: str) -> tuple[int, str]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # A command must not read the lines that are typed after it.
        report = f"__code=$?; echo; echo '{_END}' $__code"
        self._shell.stdin.write(f"{{ {text}\n}} < /dev/null\n{report}\n")
        self._shell.stdin.flush()
        timer = threading.Timer(WAIT_LIMIT, self._kill)
        timer.start()
        printed = []
        try:
            for line in self._shell.stdout:
                if line.startswith(_END):
                    # The first `echo` adds one line break that is not the command's.
                    return int(line.removeprefix(_END)), "".join(printed)[:-1]
                printed.append(line)
        finally:
            timer.cancel()
        return 1, "".join(printed) + "(the shell has ended)"

    def end(self) -> None:
        """Stop background commands, with time to end regularly, and the shell."""
        if self._shell.poll() is None:
            assert self._shell.stdin is not None
            try:
                self._shell.stdin.write("kill $(jobs -p) 2> /dev/null; wait; exit\n")
                self._shell.stdin.flush()
                self._shell.wait(WAIT_LIMIT)
            except (BrokenPipeError, subprocess.TimeoutExpired):
                self._kill()
        self._shell.wait()
        for pipe in (self._shell.stdin, self._shell.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGKILL)


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    """Its parameter, which is optional, is whether `ductile` is forked."""
    # The path of a unix socket has at most 107 bytes, so the directory needs a short name.
    folder = Path(tempfile.mkdtemp(prefix="dt-")).resolve()
    session = Session(folder, forked=getattr(request, "param", False))
    yield session
    session.end()
    shutil.rmtree(folder, ignore_errors=True)
