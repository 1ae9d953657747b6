"""Schedules and breakers without a running gateway."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from ductile.cli.client import ApiError
from ductile.cli.in_process import InProcessClient, open_reader
from ductile.clock import SystemClock
from ductile.config import load
from ductile.engine.config.compiled import build
from ductile.operations.schedule_report import find
from ductile.store import schedules
from ductile.store.engines.sqlite import SqliteLedger
from tests.cli.conftest import cli  # noqa: F401 - a fixture
from tests.cli.runner import CliRunner

CONFIG = """\
state: {path: ./data/state.db}
plugin_roots: [./plugins]
plugins:
  hello:
    schedules:
      - {cron: "0 * * * *", jitter: 10m}
      - {id: once, after: 1h, payload: {size: 2, password: hunter2}}
"""


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[InProcessClient]:
    home: CliRunner = request.getfixturevalue("cli")
    home.write("config.yaml", CONFIG)
    with open_reader(load(home.root, environ={})) as client:
        yield client


def refused(client: InProcessClient, path: str, **query: Any) -> str:
    with pytest.raises(ApiError) as refusal:
        client.get(path, **query)
    return refusal.value.code


def test_invalid_requests_are_refused(client: InProcessClient) -> None:
    for count in ("0", "1001", "x", "-1", "1.5", "²"):
        assert refused(client, "/scheduler/next", name="hello", count=count) == "usage"
    assert refused(client, "/scheduler/explain", name="hello", since="yesterday") == "usage"
    for path in ("/scheduler/next", "/scheduler/explain"):
        assert refused(client, path) == "not_found"
        assert refused(client, path, name="hello/nope") == "not_found"
    assert refused(client, "/system/breaker/nope") == "not_found"


def test_payloads_are_listed_without_secrets(client: InProcessClient) -> None:
    rows = client.get("/scheduler/jobs")["schedules"]
    assert {row["schedule"]: row["payload"] for row in rows} == {
        "default": {},
        "once": {"size": 2, "password": "[REDACTED]"},
    }


def test_first_fires_of_a_gateway_that_starts_now(client: InProcessClient) -> None:
    fires = client.get("/scheduler/next", name="hello", count=3)["fires"]
    assert [fire["schedule"] for fire in fires].count("hello/once") == 1
    assert [fire["fires_at"] for fire in fires] == sorted(fire["fires_at"] for fire in fires)
    states = {row["schedule"]: row["state"] for row in client.get("/scheduler/jobs")["schedules"]}
    assert set(states.values()) == {"active"}


def test_previews_write_nothing(client: InProcessClient) -> None:
    answer = client.post("/scheduler/hello/once/pause", {"dry_run": True})
    assert answer == {"plugin": "hello", "schedule": "once", "paused": True, "dry_run": True}
    assert client.post("/system/reset/hello", {"dry_run": True})["closed"] == []


def test_occurrences_without_a_running_gateway_are_listed(request: pytest.FixtureRequest) -> None:
    home: CliRunner = request.getfixturevalue("cli")
    home.write("config.yaml", CONFIG)
    loaded = load(home.root, environ={})
    (entry,) = find(build(loaded, boot_marker="", environ={}), "hello/default")
    long_ago = SystemClock().now() - timedelta(hours=5)
    home.state.mkdir()
    ledger = SqliteLedger(home.state / "state.db")
    ledger.start()
    ledger.write(lambda tx: schedules.ensure_entry(tx, entry, long_ago, long_ago))
    ledger.close()
    with open_reader(loaded) as client:
        slots = client.get("/scheduler/explain", name="hello/default")["slots"]
    assert len(slots) in (4, 5)
    assert {(slot["fired"], slot["why"]) for slot in slots} == {(False, "no gateway was running")}
