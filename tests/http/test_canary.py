"""No secret of the configuration in any answer, stream, log, snapshot or job log."""

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
from tests.http.doors import House, opened
from tests.http.routes.test_webhooks import sign
from tests.waiting import WAIT_LIMIT

QUIET = ("/events",)
"""Streams; followed on a connection of its own."""


class Watch:
    """Asks, and keeps every word of the answers."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.seen: list[tuple[str, str]] = []

    def ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        raw = json.dumps(body) if body is not None else None
        answer = self.house.ask(method, path, raw, token=more.pop("token", ADMIN), **more)
        text = answer.raw.decode()
        self.seen.append((f"{method} {path}", text + json.dumps(dict(answer.headers))))
        return json.loads(text) if answer.headers["content-type"] == "application/json" else text

    def run(self, payload: dict[str, Any]) -> str:
        job_id: str = self.ask("POST", "/plugin/leaky/poll", {"payload": payload})["job_id"]
        job = self.ask("GET", f"/job/{job_id}?wait=20")
        assert job["status"] in ("succeeded", "dead"), job
        return job_id


@contextmanager
def watching() -> Iterator[Watch]:
    files = {**FILES, "plugins/leaky/manifest.yaml": MANIFEST}
    with opened(CONFIG, plugins={"leaky": LEAKY}, files=files, environ=ENVIRON, seal=True) as house:
        yield Watch(house)


@pytest.fixture
def watch() -> Iterator[Watch]:
    with watching() as watch:
        yield watch


def ask_everything(watch: Watch, job_id: str) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.method == "GET" and endpoint.path not in QUIET:
            path = endpoint.path.replace("{job_id}", job_id).replace("{plugin}", "leaky")
            watch.ask("GET", path.replace("{name}", "leak").replace("{command}", "poll"))


def test_no_route_shows_one(watch: Watch) -> None:
    everything = {str(number): value for number, value in enumerate(CANARIES)}
    job_id = watch.run({**everything, "ok": True})
    watch.run({"junk": True})
    watch.ask("POST", "/plugin/leaky/poll", {"payload": everything, "dedupe_key": CANARIES[0]})
    watch.ask("POST", "/pipeline/leak", {"payload": everything})
    watch.ask("POST", f"/job/{job_id}/replay")
    ask_everything(watch, watch.run(everything))
    assert leaks(watch.seen) == []


def test_no_refusal_repeats_one(watch: Watch) -> None:
    for canary in CANARIES:
        part = canary.replace("/", "%2F").replace(" ", "%20").replace("\t", "%09").replace("é", "x")
        watch.ask("GET", f"/plugin/{part}")
        watch.ask("POST", f"/plugin/leaky/{part}")
        watch.ask("GET", f"/jobs?before={part}")
        watch.ask("POST", "/jobs/retry", {"filter": {canary: 1}})
        watch.ask("POST", "/tokens", {"name": "n", "scopes": [canary]})
        watch.ask("POST", "/pipeline/leak", canary)
        watch.ask("GET", "/jobs", token=canary + "x")
        for door in ("api", "webhooks"):
            path = "/jobs" if door == "api" else "/hook/a"
            body = {"secret": canary}
            watch.ask("POST", path, body, door=door, headers={"X-Hub-Signature-256": "0"})
    assert leaks(watch.seen) == []


def test_no_webhook_shows_one(watch: Watch) -> None:
    body = json.dumps(CANARIES).encode()
    for path, secret in (("/hook/a", ENVIRON["HOOK_SECRET"]), ("/hook/b", ENVIRON["SHARED_KEY"])):
        headers = {"X-Hub-Signature-256": sign(body, secret)}
        answer = watch.house.ask("POST", path, body, token=None, headers=headers, door="webhooks")
        assert answer.status == 202
        watch.ask("GET", f"/job/{answer.json['job_id']}?wait=20")
        watch.ask("GET", f"/job/{answer.json['job_id']}/tree")
    assert leaks(watch.seen) == []


def test_no_event_shows_one(watch: Watch) -> None:
    connection = http.client.HTTPConnection(*watch.house.address("api"), timeout=WAIT_LIMIT)
    connection.request("GET", "/events", headers={"Authorization": f"Bearer {ADMIN}"})
    stream = connection.getresponse()
    watch.run({"ok": True})
    watch.run({})
    watch.house.server.stop()
    told = stream.read().decode()
    connection.close()
    assert "job.succeeded" in told
    assert "job.dead" in told
    assert leaks([("events", told)]) == []


STORED_WHOLE = ("payload", "state", "fact_json", "accumulated_json")
"""SPEC §9: what plugins are handed again; redacted when it is shown."""


def rows(house: House) -> Iterator[tuple[str, str]]:
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

    yield from house.gateway.ledger.read(read)


def test_no_row_of_the_ledger_holds_one_that_need_not(watch: Watch) -> None:
    watch.run({"ok": True})
    watch.run({})
    watch.run({"junk": True})
    watch.ask("POST", "/pipeline/leak", {"payload": {}})
    watch.ask("POST", "/system/reload")
    found = list(rows(watch.house))
    assert {"config_snapshots.config", "job_log.stderr", "job_log.result", "notices.payload"} <= {
        where for where, _ in found
    }
    assert leaks(found) == []


def test_a_secret_at_the_edge_of_what_is_kept_is_not_half_shown(watch: Watch) -> None:
    for index in range(len(CANARIES)):
        job_id = watch.run({"cut": index}) if index else watch.run({"cut": len(CANARIES) - 1})
        (log,) = watch.ask("GET", f"/job-logs?job_id={job_id}")["logs"]
        assert len(log["stderr"]) > 60_000
        assert len(log["stdout"]) > 60_000
        kept = [("stderr", log["stderr"]), ("stdout", log["stdout"])]
        assert beginnings(kept) == []
    assert leaks(watch.seen) == []


def test_no_problem_of_a_reload_shows_one(watch: Watch) -> None:
    broken = CONFIG.replace("api_key: ", "api_key: [1]\n      other_key: ").replace(
        "max_workers: 2", 'max_workers: "${PLUGIN_KEY}"'
    )
    watch.house.write("config.yaml", broken + 'unknown_key: "${WORDY_SECRET}"\n')
    assert watch.ask("POST", "/system/reload")["code"] == "config_invalid"
    watch.ask("GET", "/system/reload")
    watch.house.write("config.yaml", CONFIG.replace("on: leaked", 'on: "${PLUGIN_KEY}"'))
    watch.ask("POST", "/system/reload")
    watch.house.write("config.yaml", CONFIG.replace("uses: leaky,", 'uses: "${PLUGIN_KEY}",'))
    watch.ask("POST", "/system/reload")
    assert leaks(watch.seen) == []


def test_no_line_of_the_log_shows_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching() as watch:
        watch.run({"ok": True})
        watch.run({})
        watch.run({"junk": True})
        watch.run({"cut": 1})
        body = {"payload": {}, "dedupe_key": CANARIES[3]}
        watch.ask("POST", "/plugin/leaky/poll", body)
        watch.ask("POST", "/plugin/leaky/poll", body)

        def crash(*_: object) -> None:
            raise RuntimeError(f"it broke on {' and '.join(CANARIES)}")

        monkeypatch.setattr(watch.house.gateway.ledger, "read", crash)
        assert watch.ask("GET", "/jobs")["code"] == "internal"
        monkeypatch.undo()
        watch.house.write("config.yaml", CONFIG + 'unknown_key: "${WORDY_SECRET}"\n')
        watch.ask("POST", "/system/reload")
    out, err = capfd.readouterr()
    assert "it broke on" in out
    assert leaks([("stdout", out), ("stderr", err)]) == []


def test_no_error_that_nobody_caught_shows_one(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    _log_crashes()
    error = RuntimeError(f"it broke on {' and '.join(CANARIES)}")

    def crash() -> None:
        raise error

    with watching() as watch:
        thread = threading.Thread(target=crash)
        thread.start()
        thread.join()
        sys.excepthook(type(error), error, None)
        # Once it answers, its loop has begun.
        watch.ask("GET", "/healthz")
        loop = watch.house.server._loop
        assert loop is not None
        loop.call_soon_threadsafe(crash)
        watch.ask("GET", "/healthz")
    out, err = capfd.readouterr()
    assert out.count("it broke on") >= 3
    assert leaks([("stdout", out), ("stderr", err)]) == []
