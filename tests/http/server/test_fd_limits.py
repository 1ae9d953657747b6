"""File descriptor limits: connections never use more than their share."""

from __future__ import annotations

import errno
import json
import resource
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ductile.http.server import fd_limits, listeners
from ductile.http.server.connection_limit import MAX_CONNECTIONS
from tests.cli.runner import COMMAND, read_until, stop
from tests.http.client import Client
from tests.http.harness import ADMIN, CONFIG, plugin, write
from tests.waiting import WAIT_LIMIT

LIMIT = """\
#!/bin/sh
cat > /dev/null
echo "{\\"status\\":\\"ok\\",\\"result\\":\\"$(ulimit -Sn)\\"}"
"""


@contextmanager
def limited(soft: int, hard: int) -> Iterator[tuple[Client, dict[str, Any], int]]:
    """Start a gateway process; yield its local client, its `ready` log line and its pid."""
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    write(root, "config.yaml", CONFIG)
    plugin(root, "echo", LIMIT)
    within = f'ulimit -Sn {soft}; ulimit -Hn {hard}; exec "$@"'
    process = subprocess.Popen(
        ["/bin/sh", "-c", within, "sh", *COMMAND, "system", "start", "--config", str(root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        ready = json.loads(read_until(process, '"message":"ready"').splitlines()[-1])
        yield Client(root / "data" / "ductile.sock"), ready, process.pid
    finally:
        stop(process)
        shutil.rmtree(root)


def test_exhausted_api_listener_does_not_stop_the_local_socket() -> None:
    follow = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
    with limited(72, 72) as (local, ready, _), ExitStack() as stack:
        host, _, port = ready["api"].partition(":")
        for _ in range(120):
            with suppress(OSError):
                raw = stack.enter_context(socket.create_connection((host, int(port)), WAIT_LIMIT))
                raw.sendall(follow.encode())
        for _ in range(5):
            job_id = local.post("/plugin/echo/poll", {}).json["job_id"]
            assert local.get(f"/job/{job_id}?wait=20").json["status"] == "succeeded"


def test_soft_limit_is_raised_for_the_gateway_but_not_for_plugins() -> None:
    with limited(256, 4096) as (local, _, pid):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4096, 4096)
        job_id = local.post("/plugin/echo/poll", {}).json["job_id"]
        assert local.get(f"/job/{job_id}?wait=20").json["result"]["result"] == "256"


@pytest.mark.parametrize(
    ("limit", "listener_count", "expected"),
    [
        (resource.RLIM_INFINITY, 3, MAX_CONNECTIONS),
        (20_000, 3, MAX_CONNECTIONS),
        (1024, 2, (1000 - fd_limits.RESERVED) // 2),
        (124, 2, 25),
        (24, 3, 1),
        (3, 3, 1),
    ],
)
def test_listeners_share_the_free_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, listener_count: int, expected: int
) -> None:
    for number in range(24):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(fd_limits, "OPEN_DESCRIPTORS", tmp_path)
    monkeypatch.setattr(fd_limits, "getrlimit", lambda _: (limit, limit))
    assert fd_limits.connections_per_listener(listener_count) == expected


class Loop:
    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


def test_descriptor_exhaustion_is_logged_once_per_second(capfd: pytest.CaptureFixture[str]) -> None:
    handler, loop = listeners._LoopErrorHandler(), Loop()
    context = {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many")}
    for _ in range(1000):
        handler(loop, context)  # type: ignore[arg-type]
    loop.now += listeners.LOG_INTERVAL
    handler(loop, context)  # type: ignore[arg-type]
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_other_loop_errors_are_logged_every_time(capfd: pytest.CaptureFixture[str]) -> None:
    handler, loop = listeners._LoopErrorHandler(), Loop()
    for _ in range(3):
        handler(loop, {"message": "a task", "exception": OSError(errno.EIO, "broken")})  # type: ignore[arg-type]
    assert len(capfd.readouterr().out.splitlines()) == 3
