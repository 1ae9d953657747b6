"""A system that gives us few descriptors: connections take no more than their share."""

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
from ductile.http.server.connection_limit import MOST_CONNECTIONS
from tests.cli.running import COMMAND, end, until
from tests.http.client import Client
from tests.http.doors import ADMIN, CONFIG, PATIENCE, plugin, write

LIMIT = """\
#!/bin/sh
cat > /dev/null
echo "{\\"status\\":\\"ok\\",\\"result\\":\\"$(ulimit -Sn)\\"}"
"""


@contextmanager
def limited(soft: int, hard: int) -> Iterator[tuple[Client, dict[str, Any], int]]:
    """A gateway in a process of its own: its local socket, what it said when ready, its pid."""
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
        ready = json.loads(until(process, '"message":"ready"').splitlines()[-1])
        yield Client(root / "data" / "ductile.sock"), ready, process.pid
    finally:
        end(process)
        shutil.rmtree(root)


def test_whoever_takes_every_connection_leaves_the_rest_to_others() -> None:
    follow = f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
    with limited(60, 60) as (local, ready, _), ExitStack() as stack:
        host, _, port = ready["api"].partition(":")
        for _ in range(120):
            with suppress(OSError):
                raw = stack.enter_context(socket.create_connection((host, int(port)), PATIENCE))
                raw.sendall(follow.encode())
        for _ in range(5):
            job_id = local.post("/plugin/echo/poll", {}).json["job_id"]
            assert local.get(f"/job/{job_id}?wait=20").json["status"] == "succeeded"


def test_the_limit_is_raised_for_us_and_not_for_plugins() -> None:
    with limited(256, 4096) as (local, _, pid):
        assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (4096, 4096)
        job_id = local.post("/plugin/echo/poll", {}).json["job_id"]
        assert local.get(f"/job/{job_id}?wait=20").json["result"]["result"] == "256"


@pytest.mark.parametrize(
    ("limit", "doors", "most"),
    [
        (resource.RLIM_INFINITY, 3, MOST_CONNECTIONS),
        (20_000, 3, MOST_CONNECTIONS),
        (1024, 2, (1000 - fd_limits.RESERVE) // 2),
        (124, 2, 25),
        (24, 3, 1),
        (3, 3, 1),
    ],
)
def test_connections_share_what_is_free(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, limit: int, doors: int, most: int
) -> None:
    for number in range(24):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(fd_limits, "OPEN", tmp_path)
    monkeypatch.setattr(fd_limits, "getrlimit", lambda _: (limit, limit))
    assert fd_limits.places(doors) == most


class Loop:
    def __init__(self) -> None:
        self.now = 100.0

    def time(self) -> float:
        return self.now


def test_that_none_is_left_is_said_once_a_second(capfd: pytest.CaptureFixture[str]) -> None:
    complaints, loop = listeners._Complaints(), Loop()
    about = {"message": "socket.accept()", "exception": OSError(errno.EMFILE, "Too many")}
    for _ in range(1000):
        complaints(loop, about)  # type: ignore[arg-type]
    loop.now += listeners.BETWEEN_COMPLAINTS
    complaints(loop, about)  # type: ignore[arg-type]
    assert len(capfd.readouterr().out.splitlines()) == 2


def test_another_error_is_said_each_time(capfd: pytest.CaptureFixture[str]) -> None:
    complaints, loop = listeners._Complaints(), Loop()
    for _ in range(3):
        complaints(loop, {"message": "a task", "exception": OSError(errno.EIO, "broken")})  # type: ignore[arg-type]
    assert len(capfd.readouterr().out.splitlines()) == 3
