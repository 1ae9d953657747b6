"""A gateway with its doors open on loopback, in this process, and ways to knock."""

from __future__ import annotations

import http.client
import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ductile.config import create_seal, load
from ductile.engine.gateway import Gateway
from ductile.http.models import queries
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import HttpServer
from ductile.http.server.run import open_listeners
from tests.http.contract import check_response
from tests.waiting import WAIT_LIMIT

ADMIN, READER, NOTHING = "admin-token-0123456789", "reader-token-0123456789", "nothing-token-012345"
CONFIG = f"""\
service: {{shutdown_grace: 0s, max_workers: 2}}
state: {{path: ./data/state.db}}
plugin_roots: [./plugins]
api:
  enabled: true
  listen: 127.0.0.1:0
  auth:
    tokens:
      - {{token: {ADMIN}, scopes: ["*"], name: admin}}
      - {{token: {READER}, scopes: ["read:jobs", "echo:ro"], name: reader}}
      - {{token: {NOTHING}, scopes: [], name: nothing}}
"""
MANIFEST = """\
name: echo
version: '1'
protocol: 1
entrypoint: run.sh
commands:
  poll: {type: write}
  peek: {type: read, description: Look at it., input_schema: {url: string}}
  handle: {type: write}
"""
ECHO = """\
#!/bin/sh
cat > /dev/null
echo '{"status":"ok","result":"done"}'
"""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def slug(self) -> Any:
        """Of an error, in whichever shape it came."""
        return self.json.get("code") or self.json["reason"]


@dataclass
class House:
    """A gateway, its files, and its doors."""

    root: Path
    gateway: Gateway
    server: HttpServer

    def address(self, door: str) -> tuple[str, int]:
        listener = next(d.socket for d in self.server.listeners if d.name == door)
        host, port = listener.getsockname()[:2]
        return host, port

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | dict[str, Any] | None = None,
        *,
        token: str | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        door: str = "api",
    ) -> Answer:
        """One request on a connection of its own."""
        connection = http.client.HTTPConnection(*self.address(door), timeout=WAIT_LIMIT)
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        raw = json.dumps(body) if isinstance(body, dict) else body
        try:
            connection.request(method, path, raw, {**sent, **(headers or {})})
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
            if door == "api":
                check_response(method, path, answer.status, answer.headers, answer.raw)
            return answer
        finally:
            connection.close()

    def connect(self, door: str = "api") -> socket.socket:
        return socket.create_connection(self.address(door), timeout=WAIT_LIMIT)

    def limiter(self, door: str = "api") -> ConnectionLimiter:
        return next(d.limiter for d in self.server.listeners if d.name == door)

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        return write(self.root, name, text, mode)


def allow_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let callers wait longer than a test may take, so that only an end can answer them."""
    for model in (queries.JobWaitQuery, queries.RunWaitQuery):
        [seconds] = model.model_fields["wait"].metadata
        monkeypatch.setattr(seconds, "most", 3600.0)


def write(root: Path, name: str, text: str, mode: int = 0o600) -> Path:
    path = root / name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def plugin(root: Path, name: str, script: str, manifest: str = MANIFEST) -> None:
    write(root, f"plugins/{name}/manifest.yaml", manifest.replace("name: echo", f"name: {name}"))
    write(root, f"plugins/{name}/run.sh", script, 0o700)


@contextmanager
def opened(
    config: str = CONFIG,
    *,
    plugins: Mapping[str, str] | None = None,
    working: bool = True,
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    seal: bool = False,
) -> Iterator[House]:
    """A gateway from open to closed; without `working` its jobs stay in the queue.

    `files` stand in the place of what would be written otherwise; with `seal` all are sealed.
    """
    # A socket's path may have no more than 107 bytes, which pytest's own directories use up.
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    write(root, "config.yaml", config)
    for name, script in (plugins or {"echo": ECHO}).items():
        plugin(root, name, script)
    for name, text in (files or {}).items():
        write(root, name, text)
    if seal:
        create_seal(root / "config.yaml").write(datetime.now(UTC))
    env = {"PATH": "/usr/bin:/bin", **(environ or {})}
    gateway = Gateway(load(root, environ=env), environ=env)
    try:
        gateway.open()
        server = open_listeners(gateway)
        if working:
            gateway.start()
        server.start()
        try:
            yield House(root, gateway, server)
        finally:
            if working:
                gateway.stop()
            server.stop()
    finally:
        gateway.close()
        shutil.rmtree(root)


def takings(monkeypatch: pytest.MonkeyPatch, way: type[Any]) -> list[bool]:
    """Whether each request that comes to this short way from now on is taken."""
    answers: list[bool] = []
    take = way.take

    def watched(self: Any, scope: Any, body: bytes, answered: Any) -> bool:
        answers.append(take(self, scope, body, answered))
        return answers[-1]

    monkeypatch.setattr(way, "take", watched)
    return answers


def error_keys(path: str) -> set[str]:
    """What every error's body has; agents read another shape (004)."""
    return {"status", "reason"} if path.startswith("/gateway/") else {"error", "code"}


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
