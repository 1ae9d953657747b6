"""A gateway with its listeners on loopback in this process, and requests to it."""

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

from ductile.config import load
from ductile.engine.gateway import Gateway
from ductile.http.models import queries
from ductile.http.server.connection_limit import ConnectionLimiter
from ductile.http.server.listeners import HttpServer
from ductile.http.server.open import open_listeners
from ductile.operations.config.seal import measure_files
from tests.http.contract import check_response
from tests.waiting import WAIT_LIMIT, until

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
      - {{token: {NOTHING}, scopes: ["nothing:ro"], name: nothing}}
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
        """The code of an error, in either shape."""
        return self.json.get("code") or self.json["reason"]


@dataclass
class ApiHarness:
    """A gateway, its directory, and its listeners."""

    root: Path
    gateway: Gateway
    server: HttpServer

    def address(self, listener: str) -> tuple[str, int]:
        bound = next(each.socket for each in self.server.listeners if each.name == listener)
        host, port = bound.getsockname()[:2]
        return host, port

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str | dict[str, Any] | None = None,
        *,
        token: str | None = ADMIN,
        headers: Mapping[str, str] | None = None,
        listener: str = "api",
    ) -> Answer:
        """Send a request on a new connection, and compare the response with the route table."""
        connection = http.client.HTTPConnection(*self.address(listener), timeout=WAIT_LIMIT)
        sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
        raw = json.dumps(body) if isinstance(body, dict) else body
        try:
            connection.request(method, path, raw, {**sent, **(headers or {})})
            response = connection.getresponse()
            answer = Answer(response.status, dict(response.getheaders()), response.read())
            if listener == "api":
                check_response(method, path, answer.status, answer.headers, answer.raw)
            return answer
        finally:
            connection.close()

    def connect(self, listener: str = "api") -> socket.socket:
        return socket.create_connection(self.address(listener), timeout=WAIT_LIMIT)

    def limiter(self, listener: str = "api") -> ConnectionLimiter:
        return next(each.limiter for each in self.server.listeners if each.name == listener)

    def write(self, name: str, text: str, mode: int = 0o600) -> Path:
        return write(self.root, name, text, mode)


def allow_long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow waits that are longer than a test may take, so that only an end can answer them."""
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
def running_api(
    config: str = CONFIG,
    *,
    plugins: Mapping[str, str] | None = None,
    working: bool = True,
    environ: Mapping[str, str] | None = None,
    files: Mapping[str, str] | None = None,
    seal: bool = False,
) -> Iterator[ApiHarness]:
    """Run a gateway; without `working` its jobs stay queued.

    `files` replace the default files; with `seal` all files and plugins are sealed.
    """
    # The path of a socket has at most 107 bytes; pytest's directories are too long.
    root = Path(tempfile.mkdtemp(prefix="ductile-")).resolve()
    write(root, "config.yaml", config)
    for name, script in (plugins or {"echo": ECHO}).items():
        plugin(root, name, script)
    for name, text in (files or {}).items():
        write(root, name, text)
    if seal:
        found = measure_files(root / "config.yaml", environ or {})
        found.seal.write(datetime.now(UTC))
    try:
        with boot(root, working=working, environ=environ) as api:
            yield api
    finally:
        shutil.rmtree(root)


@contextmanager
def boot(
    root: Path, *, working: bool = True, environ: Mapping[str, str] | None = None
) -> Iterator[ApiHarness]:
    """Run a gateway on a directory that has its config and plugins: one boot of its ledger."""
    env = {"PATH": "/usr/bin:/bin", **(environ or {})}
    gateway = Gateway(load(root, environ=env), environ=env)
    try:
        gateway.open()
        server = open_listeners(gateway)
        if working:
            gateway.start()
        server.start()
        until(lambda: server.is_started)
        try:
            yield ApiHarness(root, gateway, server)
        finally:
            if working:
                gateway.stop()
            server.stop()
    finally:
        gateway.close()


def record_taken(monkeypatch: pytest.MonkeyPatch, route: type[Any]) -> list[bool]:
    """Record whether the fast route takes each request from now on."""
    taken: list[bool] = []
    take = route.take

    def recording_take(self: Any, scope: Any, body: bytes, respond: Any) -> bool:
        taken.append(take(self, scope, body, respond))
        return taken[-1]

    monkeypatch.setattr(route, "take", recording_take)
    return taken


def error_keys(path: str) -> set[str]:
    """The keys of every error; the routes of agents have another shape."""
    return {"status", "reason"} if path.startswith("/gateway/") else {"error", "code"}


def read_all(connection: socket.socket) -> bytes:
    """Read until the peer closes the connection."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)
