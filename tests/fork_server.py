"""Gateways and commands as processes of their own, forked from one that has imported Ductile.

A process that starts from nothing spends more time on imports than most tests take. Tests of the
start itself, and those of the README and the tutorial, start `ductile` itself.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

CLI = "ductile.cli:main"
PRELOADED = (
    "ductile.cli.commands.system.gateway",
    "ductile.http.routes.webhooks",
    "ductile.http.server.run",
    "ductile.store.engines.postgres",
    "uvicorn",
    "uvicorn.lifespan.off",
)
LAUNCHER = """\
#!{python} -IS
import json, os, signal, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
command = [{function!r}, *sys.argv[1:]]
request = dict(command=command, env=dict(os.environ), cwd=os.getcwd())
socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
answers = connection.makefile()
pid = int(answers.readline())
for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda number, _: os.kill(pid, number))
code = int(answers.readline())
sys.exit(code if code >= 0 else 128 - code)
"""
_MAX_REQUEST = 1 << 16


def write_launcher(path: Path) -> None:
    """Write a program that does what `ductile` does, through the fork server of this process."""
    path.write_text(LAUNCHER.format(python=sys.executable, address=_start_server(), function=CLI))
    path.chmod(0o755)


class ForkedProcess:
    """What `subprocess.Popen` would be, with pipes as its output and a file as its input."""

    def __init__(
        self, *command: str, env: Mapping[str, str], text: bool = False, input: str = ""
    ) -> None:
        """Run the function `module:name` of `command`, with the other words as `sys.argv[1:]`."""
        self.returncode: int | None = None
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        stdin = os.memfd_create("input")
        os.pwrite(stdin, input.encode(), 0)
        request = {"command": command, "env": dict(env), "cwd": str(Path.cwd())}
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(_start_server())
            given = [stdin, out_end, err_end]
            socket.send_fds(connection, [json.dumps(request).encode()], given)
        finally:
            for fd in (stdin, out_end, err_end):
                os.close(fd)
        mode = "r" if text else "rb"
        self.stdout, self.stderr = os.fdopen(out, mode), os.fdopen(err, mode)
        self._answers = connection.makefile()
        connection.close()
        self.pid = int(self._answers.readline())
        self._ended = threading.Event()
        threading.Thread(target=self._read_exit_code, daemon=True).start()

    def _read_exit_code(self) -> None:
        with self._answers:
            self.returncode = int(self._answers.readline())
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code, or the negative number of the signal; None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        assert self.returncode is not None
        return self.returncode

    def communicate(self, timeout: float) -> tuple[Any, Any]:
        """All that it prints, once it has ended; it is killed at the end of the time."""
        printed: list[Any] = []
        reader = threading.Thread(target=lambda: printed.append(self.stderr.read()), daemon=True)
        reader.start()
        timer = threading.Timer(timeout, self.kill)
        timer.start()
        out = self.stdout.read()
        reader.join()
        timer.cancel()
        self.wait()
        self.close()
        return out, printed[0]

    def close(self) -> None:
        """Close the pipes."""
        self.stdout.close()
        self.stderr.close()

    def send_signal(self, number: int) -> None:
        # It may end at any time.
        with suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


@cache
def _start_server() -> str:
    """The address of the fork server of this process."""
    folder = tempfile.mkdtemp(prefix="dfs-")
    address = f"{folder}/socket"
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    process = subprocess.Popen(
        [sys.executable, __file__, str(listener.fileno())],
        pass_fds=[listener.fileno()],
        env=inherited,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        start_new_session=True,
    )
    listener.close()

    def stop() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        shutil.rmtree(folder)

    atexit.register(stop)
    return address


class _Server:
    """Ends when its standard input does."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._wake, self._wake_end = socket.socketpair()
        self._wake_end.setblocking(False)
        signal.set_wakeup_fd(self._wake_end.fileno())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._clients: dict[socket.socket, int] = {}
        """The processes by the connections of those that wait for them."""

    def serve(self) -> dict[str, Any] | None:
        """Fork a process for each request, and return the request in it; None at the end."""
        while True:
            waiting = [sys.stdin, self._wake, self._listener, *self._clients]
            ready, _, _ = select.select(waiting, [], [])
            if sys.stdin in ready:
                return None
            for client in self._clients.keys() & ready:
                # It has ended, as what it has started does when it is killed.
                os.kill(self._clients[client], signal.SIGKILL)
            if self._wake in ready:
                self._wake.recv(4096)
            # After the signals, which are for processes that are not reaped.
            self._report_ended()
            if self._listener in ready:
                client, _ = self._listener.accept()
                data, fds, _, _ = socket.recv_fds(client, _MAX_REQUEST, 3)
                if data and self._fork(client, fds) == 0:
                    return dict(json.loads(data))

    def _fork(self, client: socket.socket, fds: list[int]) -> int:
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for end in (self._listener, self._wake, self._wake_end, client, *self._clients):
                end.close()
            for number, fd in enumerate(fds):
                os.dup2(fd, number)
        else:
            self._clients[client] = pid
            client.sendall(b"%d\n" % pid)
        for fd in fds:
            os.close(fd)
        return pid

    def _report_ended(self) -> None:
        while self._clients:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            client = next(client for client, its in self._clients.items() if its == pid)
            del self._clients[client]
            with suppress(ConnectionError):
                client.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
            client.close()


def _run(command: Sequence[str], env: Mapping[str, str], cwd: str) -> int:
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    os.environ.clear()
    os.environ.update(kept | dict(env))
    os.chdir(cwd)
    time.tzset()
    function, *sys.argv[1:] = command
    if function == CLI:
        # As `python -m ductile` has it.
        package = importlib.import_module("ductile")
        sys.argv[0] = str(Path(str(package.__file__)).with_name("__main__.py"))
    # It reads the environment when it is imported.
    importlib.reload(importlib.import_module("ductile.failpoint"))
    module, _, name = function.partition(":")
    return int(getattr(importlib.import_module(module), name)())


def main() -> int:
    # Not the directory of this file.
    sys.path[0] = str(Path(__file__).parents[1])
    for name in PRELOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1, threading.enumerate()
    gc.collect()
    gc.freeze()
    request = _Server(socket.socket(fileno=int(sys.argv[1]))).serve()
    return 0 if request is None else _run(**request)


if __name__ == "__main__":
    sys.exit(main())
