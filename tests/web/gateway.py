"""A real gateway with a dashboard, for the browser tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.http.client import Client
from tests.ports import find_free_port
from tests.waiting import WAIT_LIMIT, until

ADMIN_TOKEN = "admin-token-of-the-browser-tests"
READER_TOKEN = "reader-token-of-the-browser-tests"

CONFIG = """
service: {{name: browser-tests, max_workers: 2}}
state: {{path: ./data/state.db}}
plugin_roots: [./plugins]
api:
  enabled: true
  listen: 127.0.0.1:{port}
  auth:
    tokens:
      - {{token: {admin}, scopes: ["*"], name: admin}}
      - token: {reader}
        scopes:
          ["jobs:ro", "events:ro", "system:ro", "agents:ro", "plugin:ro", "approvals:ro"]
        name: reader
plugins:
  slow: {{schedules: [{{id: nightly, cron: "30 2 * * *", payload: {{id: 9007199254740993}}}}]}}
  quick: {{}}
  copy: {{}}
  broken: {{retry: {{max_attempts: 1}}}}
alerts:
  - {{name: broken, on: [job.dead], to: quick, wait: 0s}}
pipelines:
  - name: photos
    on: photos.new
    schedules: [{{id: yearly, cron: "30 2 1 1 *"}}]
    steps:
      - {{id: fetch, uses: quick}}
      - id: sizes
        split: [{{id: small, uses: quick}}, {{id: large, uses: quick}}]
  - name: invoices
    on: invoices.new
    steps:
      - id: ask
        wait: {{approval: {{title: "Pay {{payload.amount}} EUR?", description: To the landlord.}}}}
      - {{id: pay, uses: quick}}
"""

PLUGINS = {
    "slow": """
echo "line 1 of <b>bold</b>" >&2
echo "::progress 33 first third" >&2
sleep 3
echo "line 2 of <b>bold</b>" >&2
echo "line 3 of <b>bold</b>" >&2
echo '{"status": "ok", "result": "done"}'
""",
    "copy": """
for percent in 40 60 80; do
    echo "::progress $percent copying" >&2
    sleep 4
done
echo '{"status": "ok", "result": "done"}'
""",
    "quick": """
echo '{"status": "ok", "result": "done", "events": [{"type": "quick.done", "payload": {}}]}'
""",
    "broken": """
echo "writing" >&2
echo '{"status": "error", "error": "the disk is full", "retry": true}'
""",
}

MANIFEST = """
manifest_spec: ductile.plugin
manifest_version: 1
name: {name}
version: "1"
protocol: 2
entrypoint: run.sh
commands:
  poll: {{type: write, description: Run it.}}{health}
  handle: {{type: write, description: Handle an event.{schema}}}
"""


class DashboardGateway:
    """A configuration in a directory, and the gateway process that runs it."""

    def __init__(self, root: Path) -> None:
        self.root, self.port = root, find_free_port()
        self._process: subprocess.Popen[bytes] | None = None
        text = CONFIG.format(port=self.port, admin=ADMIN_TOKEN, reader=READER_TOKEN)
        self._write("config.yaml", text)
        for name, script in PLUGINS.items():
            schema = " input_schema: {word: string}" if name == "slow" else ""
            health = "\n  health: {type: read}" if name == "quick" else ""
            manifest = MANIFEST.format(
                name=name, schema=f",{schema}" if schema else "", health=health
            )
            self._write(f"plugins/{name}/manifest.yaml", manifest)
            self._write(f"plugins/{name}/run.sh", f"#!/bin/sh\ncat > /dev/null\n{script}", 0o700)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        with (self.root / "gateway.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ductile", "system", "start", "--config", str(self.root)],
                stdout=log,
                stderr=log,
                env={**os.environ, "TZ": "Europe/Vienna"},
            )
        until(self._is_ready)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self._process is None:
            return
        self._process.send_signal(number)
        self._process.wait(WAIT_LIMIT)
        self._process = None

    def create_login_code(self) -> str:
        """Return a code as `ductile ui` gets it, over the local socket."""
        answer = Client(self.root / "data" / "ductile.sock").request("POST", "/ui/code", {})
        code: str = answer.json["code"]
        return code

    def break_configuration(self) -> None:
        """Write files that no reload accepts."""
        path = self.root / "config.yaml"
        path.write_text(path.read_text().replace("on: [job.dead]", "on: [job.ded]"))

    def trigger(self) -> str:
        """Run a job by a client that is not the page, and return its id."""
        queued = self._call("/plugin/quick/poll", {})
        job_id: str = queued["job_id"]
        self._call(f"/job/{job_id}?wait=30")
        return job_id

    def seed(self) -> None:
        """Create one of each thing that a screen shows."""
        self._call("/pipeline/photos", {"payload": {"id": 9007199254740993}})
        self._call("/pipeline/invoices", {"payload": {"amount": 700}})
        self._call("/plugin/broken/poll", {})
        heartbeat = {"type": "heartbeat", "agent_id": "ada", "cluster_id": "home"}
        self._call("/gateway/heartbeat", heartbeat)
        reminder = {"agent_id": "ada", "schedule": "0 9 * * 1", "payload": {"note": "report"}}
        self._call("/gateway/cron", reminder)
        webhook = {"source_identifier": "crm", "event_type": "won", "target_session": "s"}
        self._call("/gateway/webhook-configs", {**webhook, "plugin": "quick"})
        self._call("/tokens", {"name": "spare", "scopes": ["jobs:ro"]})
        self.trigger()
        self.trigger()

    def _call(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {ADMIN_TOKEN}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=WAIT_LIMIT) as response:
            return json.load(response)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.root / "gateway.log").read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/healthz", timeout=5) as response:
                return bool(response.status == 200)
        except OSError:
            return False

    def _write(self, name: str, text: str, mode: int = 0o600) -> None:
        path = self.root / name
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
