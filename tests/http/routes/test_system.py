"""System routes over the local socket, and the socket itself."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path

import pytest

from ductile.clock import SystemClock
from ductile.errors import Refused
from ductile.http.route_table import ENDPOINTS
from ductile.http.server.listeners import bind_local, bind_tcp
from ductile.operations import bulk, jobs
from tests.engine.site import OK, Site
from tests.http.harness import error_keys
from tests.http.routes.test_jobs import error
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture
def served(site: Site, serve):
    site.plugin("echo", OK, schedules=[{"id": "slow", "every": "10h"}])
    return serve()


# The socket


def test_socket_belongs_to_its_owner_only(served) -> None:
    path = served.client.path
    assert path.name == "ductile.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_ISSOCK(path.stat().st_mode)


def test_socket_has_its_mode_from_the_start(tmp_path: Path) -> None:
    """A chmod after bind would be too late."""
    before = os.umask(0)
    try:
        listener = bind_local(tmp_path / "s")
        assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    listener.close()


def test_stale_socket_is_replaced(tmp_path: Path) -> None:
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(tmp_path / "s"))
    stale.close()
    bind_local(tmp_path / "s").close()


@pytest.mark.parametrize("kind", ["local", "tcp"])
def test_backlog_takes_a_burst_before_the_server_starts(tmp_path: Path, kind: str) -> None:
    """asyncio asks for a backlog of one, the number of connections that it accepts at once."""
    local = tmp_path / "s"
    with bind_local(local) if kind == "local" else bind_tcp(("127.0.0.1", 0)) as listener:
        listener.listen(1)
        with ExitStack() as stack:
            for _ in range(24):
                peer = stack.enter_context(socket.socket(listener.family))
                peer.settimeout(0.5)
                peer.connect(listener.getsockname())


# Reading


def test_uptime_is_not_negative_after_the_clock_was_set_back(
    served, monkeypatch: pytest.MonkeyPatch
) -> None:
    past = served.running.gateway.started_at - timedelta(days=1)
    monkeypatch.setattr(SystemClock, "now", lambda self: past)
    for path in ("/", "/healthz", "/system/status"):
        assert served.get(path).json["uptime_seconds"] >= 0, path
    assert "ductile_uptime_seconds -" not in served.get("/metrics").body.decode()


def test_root_shows_name_and_version(served) -> None:
    found = served.get("/").json
    assert found["name"] == "ductile"
    assert found["uptime_seconds"] >= 0
    assert found["version"]


def test_open_breaker_is_shown_and_logged(
    site: Site, serve, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    site.settings["service"]["log_level"] = "warn"
    site.plugin(
        "bad",
        "exit 78",
        schedules=[{"every": "50ms"}],
        circuit_breaker={"threshold": 2, "reset_after": "1h"},
    )
    served = serve()
    for path in ("/plugins", "/system/status"):
        [row] = until(
            lambda path=path: [row for row in served.get(path).json["plugins"] if row["breakers"]]
        )
        assert (row["name"], row["state"]) == ("bad", "ready")
        opened, probe, error, *_ = row["reason"].split("; ")
        assert opened == "the breaker of poll is open: 2 failures in a row"
        assert probe.startswith("next probe at ")
        assert error == "last error: exit code 78"
        [breaker] = row["breakers"]
        assert (breaker["command"], breaker["state"]) == ("poll", "open")
    assert served.get("/plugin/bad").json["breakers"] == [breaker]
    lines = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    [logged] = [line for line in lines if line["message"].startswith("breaker ")]
    assert (logged["message"], logged["level"]) == ("breaker open", "warn")
    assert (logged["plugin"], logged["command"], logged["failures"]) == ("bad", "poll", 2)


def test_status_shows_the_stored_state_of_plugins_redacted(site: Site, serve) -> None:
    state = '{"cursor": 7, "oauth": {"refresh_token": "hidden"}}'
    answer = f'{{"status": "ok", "result": 1, "state_updates": {state}}}'
    site.plugin("keeps", f"cat >/dev/null; echo '{answer}'")
    site.plugin("echo", OK)
    large = f'{{"status": "ok", "result": 1, "state_updates": {{"x": "{"y" * 5000}"}}}}'
    site.plugin("large", f"cat >/dev/null; echo '{large}'")
    served = serve()
    for name in ("keeps", "echo", "large"):
        assert served.running.run(name)["status"] == "succeeded"
    rows = {
        row["name"]: row["plugin_state"] for row in served.get("/system/status").json["plugins"]
    }
    assert rows["keeps"]["value"] == {"cursor": 7, "oauth": {"refresh_token": "[REDACTED]"}}
    assert rows["keeps"]["updated_at"]
    assert rows["echo"] is None
    assert rows["large"]["value"] is None
    assert rows["large"]["bytes"] > 5000


def test_healthz_has_the_documented_keys(served) -> None:
    assert served.get("/healthz").json.keys() >= {
        "status",
        "version",
        "uptime_seconds",
        "queue_depth",
        "plugins_loaded",
        "plugins_circuit_open",
    }
    assert served.get("/healthz").json["status"] == "ok"


def test_plugins_are_listed_with_their_state_and_reason(site: Site, serve) -> None:
    site.plugin("echo", OK)
    site.plugin("bad", OK, manifest="config_keys: {required: [url]}\n")
    site.plugin("off", OK, enabled=False)
    rows = {row["name"]: row for row in serve().get("/plugins").json["plugins"]}
    assert {name: row["state"] for name, row in rows.items()} == {
        "bad": "refused",
        "echo": "ready",
        "off": "disabled",
    }
    assert "url" in rows["bad"]["reason"]
    assert rows["echo"]["commands"] == {"handle": "write", "poll": "write", "sync": "write"}


def test_status_runs_the_health_command(site: Site, serve) -> None:
    site.plugin("echo", OK, commands=("poll", "health"))
    found = serve().get("/system/status").json
    [row] = found["plugins"]
    assert row["health"]["healthy"] is True
    assert (found["running_gateway"], found["queue_depth"]) == (True, 0)


def test_plugin_directory_with_an_invalid_name_is_tolerated(site: Site, serve) -> None:
    site.plugin("echo", OK)
    odd = os.fsencode(site.plugins) + b"/bad\xff"
    os.mkdir(odd)
    with open(odd + b"/manifest.yaml", "w") as file:
        file.write("name: x\n")
    served = serve()
    assert served.get("/plugins").status == 200
    assert served.post("/plugin/echo/poll").status == 202


# Schedules and breakers


def test_schedules_are_listed(served) -> None:
    [row] = served.get("/scheduler/jobs").json["schedules"]
    assert (row["plugin"], row["schedule"], row["state"]) == ("echo", "slow", "active")
    assert row["next_run"]


def test_schedule_is_paused_and_resumed(served) -> None:
    assert served.post("/scheduler/echo/slow/pause").json["paused"] is True
    [row] = served.get("/scheduler/jobs").json["schedules"]
    assert (row["state"], row["next_run"]) == ("paused", None)
    assert served.post("/scheduler/echo/slow/resume").json["paused"] is False
    [row] = served.get("/scheduler/jobs").json["schedules"]
    assert row["state"] == "active"


def test_unknown_schedule_returns_404(served) -> None:
    for verb in ("pause", "resume"):
        error(served.post(f"/scheduler/echo/nosuch/{verb}"), 404, "not_found")
        error(served.post(f"/scheduler/nosuch/slow/{verb}"), 404, "not_found")


def test_open_breaker_is_shown_and_reset(site: Site, serve) -> None:
    site.plugin(
        "bad",
        "exit 1",
        schedules=[{"every": "50ms"}],
        retry={"max_attempts": 1},
        circuit_breaker={"threshold": 2, "reset_after": "1h"},
    )
    served = serve()
    served.running.notice("breaker.open")
    found = served.get("/system/breaker/bad").json
    assert (found["breakers"][0]["state"], found["breakers"][0]["failure_count"]) == ("open", 2)
    assert found["transitions"][0]["reason"] == "failure_threshold"
    assert served.get("/healthz").json["plugins_circuit_open"] == 1
    assert served.post("/system/reset/bad").json["closed"] == ["poll"]
    assert served.get("/system/breaker/bad").json["transitions"][0]["reason"] in (
        "manual_reset",
        "failure_threshold",
    )


def test_breaker_of_a_removed_plugin_is_shown_and_reset(site: Site, serve) -> None:
    directory = site.plugin(
        "bad",
        "exit 1",
        schedules=[{"every": "50ms"}],
        retry={"max_attempts": 1},
        circuit_breaker={"threshold": 1, "reset_after": "1h"},
    )
    served = serve()
    served.running.notice("breaker.open")
    directory.rename(site.folder / "away")
    del site.settings["plugins"]["bad"]
    site.write()
    assert served.post("/system/reload").status == 200
    assert served.get("/system/breaker/bad").json["breakers"][0]["state"] == "open"
    dry = served.post("/system/reset/bad", {"dry_run": True}).json
    assert (dry["closed"], dry["dry_run"]) == (["poll"], True)
    assert served.post("/system/reset/bad").json["closed"] == ["poll"]
    assert served.get("/system/breaker/bad").json["breakers"][0]["state"] == "closed"


def test_dry_run_of_a_reload_changes_nothing(site: Site, serve) -> None:
    site.plugin("echo", OK)
    served = serve()
    before = served.get("/config/view").json["config_hash"]
    site.plugin("other", OK)
    site.write()
    answer = served.post("/system/reload", {"dry_run": True}).json
    assert (answer["dry_run"], answer["changes"]["plugins"]["added"]) == (True, ["other"])
    assert served.get("/config/view").json["config_hash"] == before
    assert served.post("/system/reload").status == 200
    assert served.get("/config/view").json["config_hash"] != before


@pytest.mark.parametrize("how", ["disabled", "removed"])
def test_healthz_ignores_breakers_of_removed_plugins(site: Site, serve, how: str) -> None:
    failing = {
        "retry": {"max_attempts": 1},
        "circuit_breaker": {"threshold": 1, "reset_after": "1h"},
    }
    for name in ("bad", "worse"):
        site.plugin(name, "exit 1", schedules=[{"every": "50ms"}], **failing)
    served = serve()
    until(lambda: served.get("/healthz").json["plugins_circuit_open"] == 2)
    if how == "disabled":
        site.settings["plugins"]["bad"]["enabled"] = False
    else:
        del site.settings["plugins"]["bad"]
        shutil.rmtree(site.plugins / "bad")
    site.write()
    assert served.post("/system/reload").status == 200
    assert served.get("/healthz").json["plugins_circuit_open"] == 1


def test_reset_of_an_unknown_plugin_returns_404(served) -> None:
    error(served.post("/system/reset/nosuch"), 404, "not_found")


# Reload


def test_reload_loads_a_new_plugin(site: Site, served) -> None:
    site.plugin("fresh", OK)
    site.write()
    assert served.post("/system/reload").json["status"] == "ok"
    assert served.post("/plugin/fresh/poll").status == 202


def test_reload_reports_refused_plugins(site: Site, served) -> None:
    (site.plugin("fresh", OK) / "run").chmod(0o644)
    site.write()
    answer = served.post("/system/reload").json
    assert "not executable" in answer["refused"]["fresh"]


def test_refused_reload_returns_every_problem(site: Site, served) -> None:
    site.settings["service"] |= {"tick_interval": "soon", "log_level": "loud"}
    site.write()
    answer = served.post("/system/reload")
    error(answer, 409, "config_invalid")
    problems = answer.json["problems"]
    assert {problem["path"] for problem in problems} == {
        "service.tick_interval",
        "service.log_level",
    }
    assert all(problem["file"] and problem["line"] and problem["column"] for problem in problems)
    assert served.post("/plugin/echo/poll").status == 202


# Errors


def test_unknown_route_returns_404(served) -> None:
    error(served.get("/nosuch"), 404, "not_found")


def test_unsupported_method_returns_405(served) -> None:
    error(served.client.request("DELETE", "/jobs"), 405, "method_not_allowed")


def test_bug_returns_500_without_details(served, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(served.running.gateway.ledger, "read", broken)
    answer = served.get("/jobs")
    error(answer, 500, "internal")
    assert b"secret detail" not in answer.body
    monkeypatch.undo()
    assert served.get("/jobs").status == 200


def test_unknown_names_return_no_500_on_any_route(served) -> None:
    for endpoint in ENDPOINTS:
        if endpoint.path == "/events":
            continue  # This response does not end.
        path = endpoint.path.replace("{", "").replace("}", "")
        body = {} if endpoint.method != "GET" else None
        answer = served.client.request(endpoint.method, path, body)
        assert answer.status != 500, path
        assert "Traceback" not in answer.body.decode()
        if answer.status >= 400:
            assert answer.json.keys() >= error_keys(path)


def test_invalid_bytes_do_not_affect_other_clients(served) -> None:
    for raw in (
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x00\x01\x02\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /plugin/echo/poll HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab",
    ):
        sock = served.client.connect()
        sock.sendall(raw)
        sock.shutdown(socket.SHUT_WR)
        sock.recv(4096)
        sock.close()
        assert served.get("/healthz").status == 200


def test_concurrent_requests_are_all_answered(served) -> None:
    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(lambda _: served.post("/plugin/echo/poll"), range(200)))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.json["job_id"] for answer in answers}) == 200
    for answer in answers:
        served.running.ended(answer.json["job_id"])


# Health checks


def test_concurrent_status_requests_share_one_health_check(site: Site, serve) -> None:
    gate = site.gate()
    site.plugin("slow", gate.script() + OK, commands=("poll", "health"))
    served = serve()
    with ThreadPoolExecutor(24) as threads:
        asked = [threads.submit(served.get, "/system/status") for _ in range(24)]
        try:
            gate.arrived()
            assert served.get("/healthz").json["status"] == "ok"
            assert served.get("/jobs").status == 200
            assert gate.is_empty()
        finally:
            gate.open(24)
        for answer in asked:
            [row] = answer.result().json["plugins"]
            assert row["health"]["healthy"] is True


def test_finished_health_check_is_not_reused(site: Site, serve) -> None:
    site.plugin("echo", OK, commands=("poll", "health"))
    served = serve()
    assert served.get("/system/status").json["plugins"][0]["health"]["healthy"] is True
    site.plugin("echo", "exit 1", commands=("poll", "health"))
    assert served.get("/system/status").json["plugins"][0]["health"]["healthy"] is False


def test_status_with_the_last_health_runs_no_command(site: Site, serve, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    site.plugin("echo", f"echo run >> {runs}\n{OK}", commands=("poll", "health"))
    served = serve()
    before = served.get("/system/status?health=last").json
    assert before["health_checked_at"] is None
    assert before["plugins"][0]["health"] is None
    assert not runs.exists()
    checked = served.get("/system/status?health=run").json
    again = served.get("/system/status?health=last").json
    assert again["health_checked_at"] == checked["health_checked_at"] is not None
    assert again["plugins"][0]["health"] == checked["plugins"][0]["health"]
    assert runs.read_text() == "run\n"
    assert served.get("/system/status?health=never").status == 400


@pytest.mark.parametrize("path", ["/job/x/cancel", "/jobs/cancel", "/system/reload"])
def test_blocking_requests_leave_threads_for_reads(
    served, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    go_on, begun = threading.Event(), threading.Semaphore(0)

    def slow(*_: object, **__: object) -> None:
        begun.release()
        assert go_on.wait(WAIT_LIMIT)
        raise Refused("not today")

    monkeypatch.setattr(jobs, "cancel", slow)
    monkeypatch.setattr(bulk, "cancel", slow)
    monkeypatch.setattr(served.running.gateway, "reload", slow)
    body = {"filter": {"plugin": "echo"}} if path == "/jobs/cancel" else {}
    with ThreadPoolExecutor(24) as threads:
        asked = [threads.submit(served.post, path, body) for _ in range(24)]
        try:
            assert begun.acquire(timeout=WAIT_LIMIT)
            assert served.get("/healthz").json["status"] == "ok"
            assert served.get("/jobs").status == 200
        finally:
            go_on.set()
        assert {answer.result().status for answer in asked} == {409}


def test_page_of_large_facts_ends_early_with_a_cursor(site: Site, serve) -> None:
    site.plugin("echo", OK)
    served = serve()
    for seq in range(1, 4):
        fact = {"plugin": "echo", "fact_type": "t", "job_id": None, "command": None}
        fact |= {
            "fact": json.dumps({"n": seq, "x": "y" * 1_500_000}),
            "now": "2026-02-08T00:00:00Z",
        }
        served.running.gateway.ledger.write(lambda tx, fact=fact: tx.run("insert_fact", **fact))
    seen: list[int] = []
    cursor = ""
    while True:
        answer = served.get(f"/system/plugin-facts/echo?limit=100{cursor}")
        assert len(answer.body) < 4 * 1024 * 1024
        seen += [fact["fact_json"]["n"] for fact in answer.json["facts"]]
        if answer.json["cursor"] is None:
            break
        cursor = f"&before={answer.json['cursor']}"
    assert seen == [3, 2, 1]
