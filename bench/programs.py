"""What the measurements run: compiled on the spot, and put where a gateway finds it."""

from __future__ import annotations

import os
import subprocess
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ductile.clock import SystemClock, SystemEntropy, to_text
from ductile.core.jobs.plugin_protocol import encode_request, request_context
from ductile.plugins.variables import plugin_environment

SOURCES = Path(__file__).parent / "c"
PAYLOAD: dict[str, Any] = {
    "path": "/srv/inbox/report-2026-02-08.csv",
    "size": 48213,
    "tags": ["daily", "finance"],
}
PLUGINS = ("compiled", "shell", "clock")
"""`compiled` and `shell` answer ok; `clock` answers with the time at which it ran."""

MANIFEST = """\
manifest_spec: ductile.plugin
manifest_version: 1
name: {name}
version: 1.0.0
protocol: 2
entrypoint: run
concurrency_safe: true
commands: {{poll: {{type: read}}, handle: {{type: write}}}}
"""
# Without reading its request: dash reads a pipe byte by byte, and that would be most of it.
SHELL = """\
#!/bin/sh
printf '{"status":"ok","result":"done"}\\n'
"""


class Programs:
    """The compiled programs and a plugin root, in a directory of their own."""

    def __init__(self, directory: Path) -> None:
        self.plugin_root = directory / "plugins"
        self.plugin_root.mkdir(mode=0o755)
        for name in PLUGINS:
            folder = self.plugin_root / name
            folder.mkdir(mode=0o755)
            (folder / "manifest.yaml").write_text(MANIFEST.format(name=name))
            run = folder / "run"
            if name == "shell":
                run.write_text(SHELL)
            else:
                flags = ("-DCLOCK",) if name == "clock" else ()
                _compile("plugin.c", run, "-static", *flags)
            run.chmod(0o755)
        self._spawn = directory / "spawn"
        self._load = directory / "load"
        _compile("spawn.c", self._spawn, "-static")
        _compile("load.c", self._load)
        self._request = directory / "request"
        self._request.write_bytes(_request())

    def spawn_rate(self, plugin: str, seconds: float) -> float:
        """Runs a second of the C loop's two parents together."""
        program = self.plugin_root / plugin / "run"
        command = [str(self._spawn), str(seconds), str(self._request), str(program)]
        env = {**plugin_environment(os.environ, (), "bench:0"), "DUCTILE_PLUGIN": plugin}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return float(done.stdout)

    def load(self, socket: Path, plugin: str, jobs: int, connections: int) -> subprocess.Popen[str]:
        """The load generator, set going."""
        from orjson import dumps

        body = dumps({"payload": PAYLOAD}).decode()
        command = [str(self._load), str(socket), f"/plugin/{plugin}/poll", body]
        command += [str(jobs), str(connections)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def deliver(
        self, port: int, path: str, body: bytes, header: str, posts: int, connections: int
    ) -> list[float]:
        """Posts to a port until all are answered; what the load generator prints, as numbers."""
        command = [str(self._load), f":{port}", path, body.decode()]
        command += [str(posts), str(connections), header]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return [float(figure) for figure in done.stdout.split()]


def _compile(source: str, target: Path, *flags: str) -> None:
    command = ["cc", "-O2", *flags, "-o", str(target), str(SOURCES / source)]
    subprocess.run(command, check=True)


def _request() -> bytes:
    """What a slot would feed the plugin, byte for byte but for the id and the time."""
    clock = SystemClock()
    return encode_request(
        protocol=2,
        job_id=SystemEntropy().uuid(),
        command="poll",
        config={},
        state={},
        context=request_context({}, plugin="compiled"),
        deadline_at=to_text(clock.now() + timedelta(seconds=60)),
        payload=PAYLOAD,
    )


@cache
def _scratch() -> TemporaryDirectory[str]:
    return TemporaryDirectory(prefix="ductile-bench-")


def scratch() -> Path:
    """A directory that ends with the process. Short: a unix socket's path holds 107 bytes."""
    return Path(_scratch().name)


@cache
def programs() -> Programs:
    """Compiled once a run."""
    directory = scratch() / "programs"
    directory.mkdir()
    return Programs(directory)
