"""A configuration directory, plugins, seal and ledger of the Go program work unchanged."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
import yaml
from blake3 import blake3

from tests.cli.runner import read_until, stop
from tests.fork_server import CLI, ForkedProcess
from tests.ports import find_free_port
from tests.waiting import WAIT_LIMIT, until

BIN = Path(sys.executable).parent
SOURCE = Path(__file__).parent / "compat"
ADMIN, GITHUB, HOOK = "admin-key-of-the-cli", "github-key-of-scripts", "a-secret-for-webhooks"


@dataclass(frozen=True)
class GoHome:
    """The directory of a user, and commands and requests for its gateway."""

    root: Path
    api: int
    hooks: int

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self.root),
            "DUCTILE_CONFIG_DIR": str(self.root / "config"),
            "DUCTILE_PLUGINS": str(self.root / "plugins"),
            "DUCTILE_API_PORT": str(self.api),
            "DUCTILE_WEBHOOK_PORT": str(self.hooks),
            "ADMIN_API_KEY": ADMIN,
            "GITHUB_API_KEY": GITHUB,
            "GITHUB_WEBHOOK_SECRET": HOOK,
            "RELAY_SECRET": "a-secret-for-relays",
        }

    def ductile(self, *line: str) -> subprocess.CompletedProcess[str]:
        process = ForkedProcess(CLI, *line, env=self.env, text=True)
        out, err = process.communicate(WAIT_LIMIT)
        return subprocess.CompletedProcess(line, process.wait(), out, err)

    def json(self, *line: str) -> Any:
        done = self.ductile(*line, "--json")
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = ADMIN,
    ) -> tuple[int, Any]:
        data = b"" if body is None else json.dumps(body).encode()
        return self._send(self.api, method, path, data, {"Authorization": f"Bearer {token}"})

    def webhook(self, path: str, body: Any, secret: str = HOOK) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        signature = hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}"}
        return self._send(self.hooks, "POST", path, data, headers)

    def _send(
        self, port: int, method: str, path: str, data: bytes, headers: dict[str, str]
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT_LIMIT)
        try:
            connection.request(method, path, data, {"Content-Type": "application/json", **headers})
            response = connection.getresponse()
            raw = response.read()
            return response.status, json.loads(raw) if raw.startswith(b"{") else raw
        finally:
            connection.close()

    def seal(self) -> None:
        """Write a seal in the format of the Go program."""
        files = [path for path in (self.root / "config").rglob("*") if path.is_file()]
        echo = self.root / "plugins/echo"
        document = {
            "version": 2,
            "generated_at": "2026-02-25T09:30:00+11:00",
            "hashes": {str(path): digest(path) for path in files},
            "plugin_fingerprints": [
                {
                    "name": "echo",
                    "enabled": True,
                    "manifest_path": str(echo / "manifest.yaml"),
                    "manifest_hash": digest(echo / "manifest.yaml"),
                    "entrypoint_path": str(echo / "run.sh"),
                    "entrypoint_hash": digest(echo / "run.sh"),
                }
            ],
        }
        text = yaml.safe_dump(document, sort_keys=False)
        (self.root / "config/.checksums").write_text(text)

    @contextmanager
    def gateway(self) -> Iterator[None]:
        process = ForkedProcess(CLI, "system", "start", env=self.env, text=True)
        try:
            read_until(process, '"message":"ready"')
            yield
        finally:
            assert stop(process) == 0


def digest(path: Path) -> str:
    return blake3(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def home() -> Iterator[GoHome]:
    # Short, because the path of a socket has at most 107 bytes.
    root = Path(tempfile.mkdtemp(prefix="ductile-go-")).resolve()
    for name in ("config", "plugins", "plugins-private"):
        shutil.copytree(SOURCE / name, root / name)
    (root / "config/env").rename(root / "config/.env")
    home = GoHome(root, find_free_port(), find_free_port())
    home.seal()
    yield home
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def running(home: GoHome) -> Iterator[GoHome]:
    """A gateway that was started after the import of the Go ledger, which is at the same path."""
    ledger = home.root / "config/data/state.db"
    ledger.parent.mkdir(mode=0o700)
    with closing(apsw.Connection(str(ledger))) as db:
        db.execute((SOURCE / "ledger.sql").read_text())
    refused = home.ductile("system", "start")
    assert refused.returncode == 1
    assert "ductile system import" in refused.stderr
    imported = home.json("system", "import")
    assert imported["states"] == ["withings"]
    assert (imported["facts"], imported["jobs"], imported["unfinished"]) == (2, 1, 0)
    assert Path(imported["moved_to"]).exists()
    with home.gateway():
        yield home


def test_configuration_is_valid(home: GoHome) -> None:
    checked = home.json("config", "check")
    assert checked["ok"]
    assert set(checked["plugins"]) == {
        "archive",
        "echo",
        "echo_kitchen",
        "fabric",
        "github-handler",
        "notify",
        "withings",
    }
    assert [w["message"] for w in checked["warnings"]] == []


def test_violated_seal_is_rejected(home: GoHome) -> None:
    tokens = home.root / "config/tokens.yaml"
    text = tokens.read_text()
    try:
        tokens.write_text(text + "# changed\n")
        done = home.ductile("system", "start", "--dry-run")
        assert done.returncode == 78
        assert "has changed since it was sealed" in done.stderr
    finally:
        tokens.write_text(text)


def test_values_of_alternative_forms(home: GoHome) -> None:
    config = home.json("config", "show")
    assert config["service"]["log_level"] == "info"
    assert config["state"]["path"] == str(home.root / "config/data/state.db")
    assert config["plugin_roots"] == [
        str(home.root / "plugins"),
        str(home.root / "plugins-private"),
    ]
    (endpoint,) = config["webhooks"]["endpoints"]
    assert (endpoint["name"], endpoint["secret"]) == ("github", "[REDACTED]")
    assert config["plugins"]["withings"]["schedules"][0]["not_on"] == [6, 7]


def test_plugins_are_found_and_the_first_root_wins(running: GoHome) -> None:
    rows = {(row["name"], row["state"]): row for row in running.json("plugin", "list")["plugins"]}
    assert rows["echo", "ready"]["version"] == "0.1.0"
    assert ("echo", "shadowed") in rows
    assert ("retired", "disabled") in rows
    assert rows["echo_kitchen", "ready"]["uses"] == "echo"
    assert not any(name == "lib" for name, _ in rows)


def test_plugin_runs_with_config_from_the_environment(running: GoHome) -> None:
    # Only the value of the variable is redacted, so the plugin received it.
    assert running.json("plugin", "run", "echo")["result"]["result"] == "Hello from [REDACTED]"
    kitchen = running.json("plugin", "run", "echo_kitchen")
    assert kitchen["result"]["result"] == "Hello from the kitchen"


def test_facts_state_and_route(running: GoHome) -> None:
    job = running.json("plugin", "run", "withings")
    assert job["status"] == "succeeded"
    facts = running.json("system", "plugin-facts", "withings")
    # The plugin also runs for its schedule, if it is within its window, and for imported jobs.
    cursors = [fact["fact"]["cursor"] for fact in facts["facts"]]
    assert facts["facts"][0]["fact"] == facts["state"]
    assert cursors[0] >= 42
    assert cursors == list(range(cursors[0], 39, -1))
    assert {fact["fact_type"] for fact in facts["facts"]} == {"withings.snapshot"}
    routed = until(lambda: _children(running, job["job_id"]))
    assert [(row["plugin"], row["command"]) for row in routed] == [("notify", "handle")]


def _children(home: GoHome, job_id: str) -> Any:
    jobs = home.call("GET", f"/job/{job_id}/tree?flat=true")[1]["jobs"]
    found = [row for row in jobs if row["parent_job_id"] == job_id]
    return found if all(row["status"] == "succeeded" for row in found) else None


def test_api_with_a_token_of_a_scopes_file(running: GoHome) -> None:
    status, queued = running.call("POST", "/plugin/echo/poll", {"payload": {}})
    assert (status, queued["status"]) == (202, "queued")
    status, job = running.call("GET", f"/job/{queued['job_id']}?wait=20")
    assert (status, job["status"]) == (200, "succeeded")
    assert running.call("GET", "/jobs", token=GITHUB)[0] == 200
    assert running.call("POST", "/plugin/echo/poll", {}, token=GITHUB)[0] == 403
    assert running.call("POST", "/plugin/withings/poll", {}, token=GITHUB)[0] == 202
    assert running.call("POST", "/plugin/withings/token_refresh", {}, token=GITHUB)[0] == 403
    assert running.call("GET", "/jobs", token="wrong")[0] == 401


def test_webhook_with_a_secret_ref(running: GoHome) -> None:
    assert running.webhook("/webhook/github", {}, secret="wrong")[0] == 403
    push = {"repository": {"full_name": "me/project"}}
    status, body = running.webhook("/webhook/github", push)
    assert status == 202
    job = running.json("job", "inspect", body["job_id"])
    assert job["plugin"] == "github-handler"
    assert until(lambda: _find_sent(running, "push to me/project"))["status"] == "succeeded"


def _find_sent(home: GoHome, message: str) -> Any:
    logs = home.call("GET", "/job-logs?plugin=notify&limit=200")[1]["logs"]
    wanted = f"sent: {message}"
    return next((e for e in logs if any(x["message"] == wanted for x in e["logs"] or ())), None)


def test_pipeline_with_every_kind_of_step(running: GoHome) -> None:
    payload = {"text": "a long enough text", "length": 18, "channel": "kitchen"}
    status, body = running.call("POST", "/pipeline/text-wisdom", {"payload": payload})
    assert status == 200, body
    assert body["status"] == "succeeded"
    ran = {row["step"]: row for row in running.json("job", "inspect", body["job_id"])["graph"]}
    assert {step for step in ran if step} == {
        "keep",
        "long-only__switch",
        "long-only",
        "step_1.summarize",
        "step_2.first",
        "step_2.second",
        "publish.0.people",
        "publish.1.archive.write",
        "to-lab",
    }
    assert {row["status"] for row in ran.values()} == {"succeeded"}
    sent = until(
        lambda: _find_sent(running, "Wisdom for kitchen: summary(long(a long enough text))")
    )
    assert sent["status"] == "succeeded"


def test_relay_is_received_as_an_event(running: GoHome) -> None:
    payload = {"text": "another long text", "length": 17, "channel": "cellar"}
    assert running.call("POST", "/pipeline/text-wisdom", {"payload": payload})[0] == 200
    sent = until(lambda: _find_sent(running, "received from the lab: cellar"))
    assert sent["submitted_by"] == "relay"


def test_hook_pipeline_runs_when_a_job_ends(running: GoHome) -> None:
    running.json("plugin", "run", "echo")
    assert until(lambda: _find_sent(running, "echo succeeded"))["submitted_by"] == "hook"


@pytest.mark.parametrize(
    "line",
    [
        ("system", "status"),
        ("system", "breaker", "withings"),
        ("system", "plugin-facts", "withings"),
        ("job", "logs", "--plugin", "echo", "--limit", "5"),
        ("config", "get", "plugins.withings.schedules[0].every"),
        ("config", "show", "plugin:withings"),
        ("config", "show", "plugin:*"),
        ("config", "show", "token:admin-cli"),
        ("config", "set", "plugin:withings.enabled=false", "--dry-run"),
    ],
)
def test_command_lines_of_the_go_program(running: GoHome, line: tuple[str, ...]) -> None:
    running.json(*line)


def test_config_lock_accepts_the_option_of_the_go_program(home: GoHome) -> None:
    directory = str(home.root / "config")
    seal = home.json("config", "lock", "--config-dir", directory, "--dry-run")
    assert set(seal["files"].values()) == {"same"}
    # The seal of the home names one plugin only.
    assert set(seal["plugin_states"].values()) == {"new"}
    assert "echo" not in seal["plugin_states"]


def test_api_command_uses_the_first_token(running: GoHome) -> None:
    done = running.ductile("api", "/plugin/echo/poll", "-X", "POST", "-f", 'payload={"a": 1}')
    assert done.returncode == 0
    assert json.loads(done.stdout)["status"] == "queued"


def test_secrets_are_not_revealed(running: GoHome) -> None:
    output = "".join(
        running.ductile(*line).stdout
        for line in (
            ("config", "show"),
            ("config", "show", "plugin:withings"),
            ("job", "logs", "--limit", "200"),
            ("skills", "export"),
        )
    )
    for secret in (ADMIN, GITHUB, HOOK, "withings-secret-value", "a-secret-for-relays"):
        assert secret not in output
