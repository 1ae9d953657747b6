"""No secret of the configuration is in a response, stream, log line or ledger row."""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ductile.http.route_table import ENDPOINTS
from ductile.http.server.run import _log_crashes
from tests.canaries import (
    ADMIN,
    CANARIES,
    CONFIG,
    ENVIRON,
    FILES,
    LEAKY,
    MANIFEST,
    beginnings,
    leaks,
)
from tests.http.harness import ApiHarness, running_api
from tests.http.routes.test_webhooks import sign
from tests.waiting import WAIT_LIMIT

QUIET = ("/events",)
"""A stream; read on a connection of its own."""


class Recorder:
    """Sends requests and keeps all responses."""

    def __init__(self, api: ApiHarness) -> None:
        self.api = api
        self.seen: list[tuple[str, str]] = []

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        raw = json.dumps(body) if body is not None else None
        answer = self.api.ask(method, path, raw, token=more.pop("token", ADMIN), **more)
        text = answer.raw.decode()
        self.seen.append((f"{method} {path}", text + json.dumps(dict(answer.headers))))
        return json.loads(text) if answer.headers["content-type"] == "application/json" else text

    def run(self, payload: dict[str, Any]) -> str:
        job_id: str = self.ask("POST", "/plugin/leaky/poll", {"payload": payload})["job_id"]
        job = self.ask("GET", f"/job/{job_id}?wait=20")
        assert job["status"] in ("succeeded", "dead"), job
        return job_id


@contextmanager
def recording() -> Iterator[Recorder]:
    files = {**FILES, "plugins/leaky/manifest.yaml": MANIFEST}
    with running_api(
        CONFIG, plugins={"leaky": LEAKY}, files=files, environ=ENVIRON, seal=True
    ) as api:
        yield Recorder(api)


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


def ask_everything(recorder: Recorder, job_id: str) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.path not in QUIET:
            path = endpoint.path.replace("{job_id}", job_id).replace("{plugin}", "leaky")
            recorder.ask("GET", path.replace("{name}", "leak").replace("{command}", "poll"))


def test_no_response_contains_a_secret(recorder: Recorder) -> None:
    everything = {str(number): value for number, value in enumerate(CANARIES)}
    job_id = recorder.run({**everything, "ok": True})
    recorder.run({"junk": True})
    recorder.ask("POST", "/plugin/leaky/poll", {"payload": everything, "dedupe_key": CANARIES[0]})
    recorder.ask("POST", "/pipeline/leak", {"payload": everything})
    recorder.ask("POST", f"/job/{job_id}/replay")
    ask_everything(recorder, recorder.run(everything))
    assert leaks(recorder.seen) == []


def test_no_error_contains_a_secret(recorder: Recorder) -> None:
    for canary in CANARIES:
        part = canary.replace("/", "%2F").replace(" ", "%20").replace("\t", "%09").replace("é", "x")
        recorder.ask("GET", f"/plugin/{part}")
        recorder.ask("POST", f"/plugin/leaky/{part}")
        recorder.ask("GET", f"/jobs?before={part}")
        recorder.ask("POST", "/jobs/retry", {"filter": {canary: 1}})
        recorder.ask("POST", "/tokens", {"name": "n", "scopes": [canary]})
        recorder.ask("POST", "/pipeline/leak", canary)
        recorder.ask("GET", "/jobs", token=canary + "x")
        for listener in ("api", "webhooks"):
            path = "/jobs" if listener == "api" else "/hook/a"
            body = {"secret": canary}
            headers = {"X-Hub-Signature-256": "0"}
            recorder.ask("POST", path, body, listener=listener, headers=headers)
    assert leaks(recorder.seen) == []


def test_no_webhook_response_contains_a_secret(recorder: Recorder) -> None:
    body = json.dumps(CANARIES).encode()
    for path, secret in (("/hook/a", ENVIRON["HOOK_SECRET"]), ("/hook/b", ENVIRON["SHARED_KEY"])):
        headers = {"X-Hub-Signature-256": sign(body, secret)}
        answer = recorder.api.ask(
            "POST", path, body, token=None, headers=headers, listener="webhooks"
        )
        assert answer.status == 202
        recorder.ask("GET", f"/job/{answer.json['job_id']}?wait=20")
        recorder.ask("GET", f"/job/{answer.json['job_id']}/tree")
    assert leaks(recorder.seen) == []


def test_no_event_contains_a_secret(recorder: Recorder) -> None:
    connection = http.client.HTTPConnection(*recorder.api.address("api"), timeout=WAIT_LIMIT)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {ADMIN}"})
    stream = connection.getresponse()
    recorder.run({"ok": True})
    recorder.run({})
    recorder.api.server.stop()
    received = stream.read().decode()
    connection.close()
    assert "job.succeeded" in received
    assert "job.dead" in received
    assert leaks([("events", received)]) == []


STORED_WHOLE = ("payload", "state", "fact_json", "accumulated_json")
"""Values that plugins receive again; they are redacted when they are shown."""


def rows(api: ApiHarness) -> Iterator[tuple[str, str]]:
    """Every value of every row of the ledger."""

    def read(tx: Any) -> list[tuple[str, str]]:
        found = []
        tables = tx._connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (table,) in tables.fetchall():
            cursor = tx._connection.cursor()
            for row in cursor.execute(f'SELECT * FROM "{table}"'):
                names = [column[0] for column in cursor.get_description()]
                found += [
                    (f"{table}.{name}", str(value))
                    for name, value in zip(names, row, strict=True)
                    if name not in STORED_WHOLE or table == "notices"
                ]
        return found

    yield from api.gateway.ledger.read(read)


def test_no_ledger_row_contains_an_unnecessary_secret(recorder: Recorder) -> None:
    recorder.run({"ok": True})
    recorder.run({})
    recorder.run({"junk": True})
    recorder.ask("POST", "/pipeline/leak", {"payload": {}})
    recorder.ask("POST", "/system/reload")
    found = list(rows(recorder.api))
    assert {"config_snapshots.config", "job_log.stderr", "job_log.result", "notices.payload"} <= {
        where for where, _ in found
    }
    assert leaks(found) == []


def test_secret_at_a_truncation_limit_is_redacted(recorder: Recorder) -> None:
    for index in range(len(CANARIES)):
        job_id = recorder.run({"cut": index}) if index else recorder.run({"cut": len(CANARIES) - 1})
        (log,) = recorder.ask("GET", f"/job-logs?job_id={job_id}")["logs"]
        assert len(log["stderr"]) > 60_000
        assert len(log["stdout"]) > 60_000
        kept = [("stderr", log["stderr"]), ("stdout", log["stdout"])]
        assert beginnings(kept) == []
    assert leaks(recorder.seen) == []


def test_no_reload_problem_contains_a_secret(recorder: Recorder) -> None:
    broken = CONFIG.replace("api_key: ", "api_key: [1]\n      other_key: ").replace(
        "max_workers: 2", 'max_workers: "${PLUGIN_KEY}"'
    )
    recorder.api.write("config.yaml", broken + 'unknown_key: "${WORDY_SECRET}"\n')
    assert recorder.ask("POST", "/system/reload")["code"] == "config_invalid"
    recorder.ask("GET", "/system/reload")
    recorder.ask("GET", "/config/plan")
    recorder.api.write("config.yaml", CONFIG.replace("on: leaked", 'on: "${PLUGIN_KEY}"'))
    recorder.ask("POST", "/system/reload")
    recorder.api.write("config.yaml", CONFIG.replace("uses: leaky,", 'uses: "${PLUGIN_KEY}",'))
    recorder.ask("POST", "/system/reload")
    assert leaks(recorder.seen) == []


def test_no_log_line_contains_a_secret(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with recording() as recorder:
        recorder.run({"ok": True})
        recorder.run({})
        recorder.run({"junk": True})
        recorder.run({"cut": 1})
        body = {"payload": {}, "dedupe_key": CANARIES[3]}
        recorder.ask("POST", "/plugin/leaky/poll", body)
        recorder.ask("POST", "/plugin/leaky/poll", body)

        def crash(*_: object) -> None:
            raise RuntimeError(f"it broke on {' and '.join(CANARIES)}")

        monkeypatch.setattr(recorder.api.gateway.ledger, "read", crash)
        assert recorder.ask("GET", "/jobs")["code"] == "internal"
        monkeypatch.undo()
        recorder.api.write("config.yaml", CONFIG + 'unknown_key: "${WORDY_SECRET}"\n')
        recorder.ask("POST", "/system/reload")
    out, err = capfd.readouterr()
    assert "it broke on" in out
    assert leaks([("stdout", out), ("stderr", err)]) == []


def test_no_uncaught_error_contains_a_secret(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    _log_crashes()
    error = RuntimeError(f"it broke on {' and '.join(CANARIES)}")

    def crash() -> None:
        raise error

    with recording() as recorder:
        thread = threading.Thread(target=crash)
        thread.start()
        thread.join()
        sys.excepthook(type(error), error, None)
        # Once it answers, its loop has begun.
        recorder.ask("GET", "/healthz")
        loop = recorder.api.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(crash)
        recorder.ask("GET", "/healthz")
    out, err = capfd.readouterr()
    assert out.count("it broke on") >= 3
    assert leaks([("stdout", out), ("stderr", err)]) == []
