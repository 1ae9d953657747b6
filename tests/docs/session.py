"""A shell that types what a page says, in a directory of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

from tests.docs.page import Command
from tests.waiting import WAIT_LIMIT, until

PORTS = ("8080", "8081", "8082", "9090")
"""Of the pages; here each stands for one that is free."""
_END = "-- end of command --"


class Session:
    """Bash, with `ductile` on its path and a home that is empty."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ports = {port: str(free_port()) for port in PORTS}
        bin_dir = Path(sys.executable).parent
        env = {
            "PATH": f"{bin_dir}{os.pathsep}{os.environ['PATH']}",
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

    def run(self, command: Command) -> tuple[int, str]:
        """Its exit code and all that it printed."""
        text = command.text
        for port, free in self._ports.items():
            text = text.replace(f":{port}", f":{free}")
        if command.stays:
            return self._start(text)
        return self._type(text)

    def _start(self, text: str) -> tuple[int, str]:
        """In the background; a gateway, until it says that it is ready."""
        self._started += 1
        log = self.folder / f".background-{self._started}.log"
        log.touch()
        code, said = self._type(f"{text.rstrip().removesuffix('&')} > {log} 2>&1 &")
        if "system start" in text:
            until(lambda: "ready" in log.read_text())
        return code, said

    def _type(self, text: str) -> tuple[int, str]:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        # A command may not read what is typed after it.
        tell = f"__code=$?; echo; echo '{_END}' $__code"
        self._shell.stdin.write(f"{{ {text}\n}} < /dev/null\n{tell}\n")
        self._shell.stdin.flush()
        timer = threading.Timer(WAIT_LIMIT, self._kill)
        timer.start()
        said = []
        try:
            for line in self._shell.stdout:
                if line.startswith(_END):
                    # The line that `echo` alone has put before it is not the command's.
                    return int(line.removeprefix(_END)), "".join(said)[:-1]
                said.append(line)
        finally:
            timer.cancel()
        return 1, "".join(said) + "(the shell has ended)"

    def end(self) -> None:
        """With everything that was put into the background, which is left time to end well."""
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


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port
