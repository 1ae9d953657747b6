"""Backups and the overview."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.site import OK, Site
from tests.http.conftest import Served
from tests.http.harness import running_api


def test_backup_is_started_and_waited_for(site: Site, serve: Callable[[], Served]) -> None:
    site.plugin("echo", OK)
    served = serve()
    assert served.get("/system/backup").json["state"] == "none"
    target = site.folder / "copy.db"
    begun = served.post("/system/backup", {"path": str(target)})
    assert (begun.status, begun.json["path"]) == (202, str(target))
    done = served.get("/system/backup?wait=20").json
    assert (done["state"], done["made"]["bytes"]) == ("done", target.stat().st_size)


@pytest.mark.parametrize(
    "body",
    [
        {"path": "relative.db"},
        {"path": ""},
        {"path": 7},
        {"path": "/a\0b"},
        {"replace": "yes"},
        {"replace": 1},
    ],
)
def test_malformed_backup_request_is_refused(
    site: Site, serve: Callable[[], Served], body: dict[str, object]
) -> None:
    answer = serve().post("/system/backup", body)
    assert (answer.status, answer.json["code"]) == (400, "usage")


def test_path_is_accepted_on_the_local_socket_only(tmp_path: Path) -> None:
    with running_api() as api:
        target = tmp_path / "copy.db"
        answer = api.ask("POST", "/system/backup", f'{{"path": "{target}"}}')
        assert (answer.status, answer.json["code"]) == (409, "refused")
        assert api.ask("POST", "/system/backup", "{}").status == 202
        done = api.ask("GET", "/system/backup?wait=20").json
        assert done["state"] == "done"
        assert Path(done["made"]["path"]).parent == api.gateway.state_dir / "backups"
    assert not target.exists()


def test_failed_backup_reports_the_reason(site: Site, serve: Callable[[], Served]) -> None:
    served = serve()
    target = site.folder / "copy.db"
    target.write_text("mine")
    answer = served.post("/system/backup", {"path": str(target)})
    assert (answer.status, answer.json["code"]) == (409, "refused")
    own = served.post("/system/backup", {"path": str(site.state / "state.db-wal")})
    assert (own.status, own.json["code"]) == (409, "refused")


def test_dry_run_starts_no_backup(site: Site, serve: Callable[[], Served]) -> None:
    served = serve()
    answer = served.post("/system/backup", {"dry_run": True})
    assert answer.status == 200
    assert answer.json["free"] > 0
    assert served.get("/system/backup").json["state"] == "none"
    assert "backups" not in os.listdir(site.state)


def test_stop_ends_a_backup_and_removes_its_file(site: Site, serve: Callable[[], Served]) -> None:
    served = serve()
    for end in served.running.gateway.on_stop:
        end()
    answer = served.post("/system/backup", {"path": str(site.folder / "copy.db")})
    assert answer.status == 409


def test_overview_shows_running_queued_and_failed_jobs(
    site: Site, serve: Callable[[], Served]
) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK, parallelism=1, schedules=[{"every": "30d"}])
    site.plugin("bad", "exit 1", retry={"max_attempts": 2, "backoff_base": "1h"})
    site.plugin("late", "exit 1", commands=("init", "poll"))
    served = serve()
    gate.arrived()
    waits = served.running.put("slow")
    served.running.tried(served.running.put("bad"))
    served.running.put("late")
    page = served.get("/system/overview").json
    gate.open(2)
    served.running.ended(waits)
    assert page["running_gateway"] is True
    assert [job["plugin"] for job in page["running"]] == ["slow"]
    assert {row["plugin"]: row["jobs"] for row in page["waiting"]} == {"slow": 1, "late": 1}
    queue = {"ready": 2, "retrying": 1, "running": 1, "waits": 0, "approvals": 0}
    assert page["queue"] == queue
    assert "bad" in [row["plugin"] for row in page["failures"]]
    assert "late" in page["held"]
    assert [row["plugin"] for row in page["next"]] == ["slow"]


def test_overview_shows_breakers_of_loaded_plugins(site: Site, serve: Callable[[], Served]) -> None:
    site.plugin("echo", OK)
    served = serve()
    for plugin in ("echo", *(f"gone-{number}" for number in range(60))):
        row = {"plugin": plugin, "command": "poll", "state": "open", "failure_count": 3}
        absent = ("last_failure_at", "last_job_id", "probe_job_id")
        opened_at = "2026-02-09" if plugin == "echo" else "2026-02-08"
        row |= {"now": "2026-02-09", "opened_at": opened_at, **dict.fromkeys(absent)}
        served.running.gateway.ledger.write(lambda tx, row=row: tx.run("store_breaker", **row))
    assert [row["plugin"] for row in served.get("/system/overview").json["breakers"]] == ["echo"]
