"""The gateway on PostgreSQL."""

from __future__ import annotations

import contextlib
from datetime import timedelta

import psycopg
import pytest

from ductile.engine.recovery import dead_nodes, node_heartbeat
from ductile.errors import LedgerError
from ductile.model import Cancellation
from ductile.operations import schedule_report, status
from tests.engine.site import OK, PYTHON, Site
from tests.postgres import Server
from tests.waiting import until


@pytest.fixture
def url(postgres: Server, site: Site) -> str:
    url = postgres.database()
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return url


def test_jobs_run_and_are_recorded(site: Site, url: str) -> None:
    site.plugin(
        "echo",
        PYTHON + "r = json.load(sys.stdin)\n"
        "print(json.dumps({'status': 'ok', 'result': r['state'], 'state_updates': {'n': 1},\n"
        "                  'logs': ['nul \\0 inside']}))",
    )
    with site.running() as running:
        assert running.run("echo")["result"]["result"] == {}
        job = running.run("echo", payload={"nul": "a\0b"})
    assert (job["status"], job["result"]["result"]) == ("succeeded", {"n": 1})


def test_failed_job_is_retried_and_ends(site: Site, url: str) -> None:
    site.plugin("bad", "exit 1", retry={"max_attempts": 2, "backoff_base": "10ms"})
    with site.running() as running:
        job = running.run("bad")
    assert (job["status"], job["attempt"]) == ("dead", 2)


def test_running_job_is_cancelled(site: Site, url: str) -> None:
    gate = site.gate()
    site.plugin("echo", gate.script())
    with site.running() as running:
        id = running.put("echo")
        gate.arrived()
        assert running.gateway.cancel_running(id, Cancellation.OPERATOR)
        assert running.ended(id)["status"] == "dead"


def test_jobs_of_a_serial_plugin_never_overlap(site: Site, url: str) -> None:
    site.settings["service"]["max_workers"] = 4
    path = site.folder / "runs"
    site.plugin("solo", f"echo + >> {path}\necho - >> {path}\n{OK}", parallelism=1)
    with site.running() as running:
        ids = [running.put("solo") for _ in range(20)]
        assert {running.ended(id)["status"] for id in ids} == {"succeeded"}
    assert path.read_text().split() == ["+", "-"] * 20


def test_job_row_of_another_process_is_found(site: Site, url: str) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        with psycopg.connect(url) as connection:
            connection.execute(
                "INSERT INTO job_queue (id, plugin, command, payload, status, attempt,"
                " max_attempts, submitted_by, created_at) VALUES"
                " ('script-1', 'echo', 'poll', '{}', 'queued', 1, 4, 'cli', '2026-02-08 10:00:00')"
            )
        assert running.ended("script-1")["status"] == "succeeded"


def test_too_long_dedupe_key_of_an_event_fails_only_its_job(site: Site, url: str) -> None:
    """Random letters, because repetition is compressed."""
    site.plugin(
        "emit",
        PYTHON + "import random, string\n"
        "key = ''.join(random.choices(string.ascii_letters, k=4000))\n"
        "event = {'type': 'made', 'payload': {}, 'dedupe_key': key}\n"
        "print(json.dumps({'status': 'ok', 'result': 1, 'events': [event]}))",
        retry={"max_attempts": 1},
    )
    site.plugin("echo", OK)
    site.settings["routes"] = [{"from": "emit", "event_type": "made", "to": "echo"}]
    with site.running() as running:
        job = running.run("emit")
        assert running.run("echo")["status"] == "succeeded"
    assert (job["status"], job["attempt"]) == ("dead", 1)
    assert "events[0].dedupe_key is 4000 bytes long" in job["last_error"]
    assert job["attempts"][0]["stdout"].startswith('{"status": "ok"')


def test_schedules_fire_and_are_listed(site: Site, url: str) -> None:
    site.plugin("echo", OK, schedules=[{"every": "50ms"}])
    with site.running() as running:
        running.notice("job.succeeded")
        gateway = running.gateway
        [row] = schedule_report.listing(
            gateway.compiled, gateway.unready, gateway.ledger, gateway.clock.now()
        )
        assert row["state"] == "active"
        assert row["last_fire"]


def test_status_can_be_read(site: Site, url: str) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        running.run("echo")
        gateway = running.gateway
        now = gateway.clock.now()
        page = status.status(gateway.compiled, gateway.unready, gateway.ledger, {}, now)
    assert page["plugins"][0]["last_run"]["status"] == "succeeded"


def test_jobs_of_a_dead_boot_are_recovered(
    site: Site, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_nodes, "LOST_AFTER", timedelta(seconds=0.5))
    monkeypatch.setattr(node_heartbeat, "CHECK_SECONDS", 0.05)
    site.plugin("echo", OK, retry={"backoff_base": "10ms"})
    with site.opened():
        pass
    with psycopg.connect(url) as connection:
        connection.execute(
            "INSERT INTO job_queue (id, plugin, command, payload, status, attempt, max_attempts,"
            " submitted_by, created_at, started_at, owner) VALUES ('orphan', 'echo', 'poll', '{}',"
            " 'running', 1, 4, 'cli', '2026-02-08T10:00:00.000000Z',"
            " '2026-02-08T10:00:00.000000Z', 'dead-boot')"
        )
    with site.running() as running:
        job = running.ended("orphan")
    assert (job["status"], job["attempt"]) == ("succeeded", 2)


def test_dropped_connections_do_not_end_the_work(site: Site, url: str) -> None:
    site.plugin("echo", OK)
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        ids: list[str] = []

        def put() -> bool:
            with contextlib.suppress(LedgerError):
                ids.append(running.put("echo"))
            return len(ids) >= 4

        until(put)
        for id in ids:
            until(lambda id=id: status_of(url, id) == "succeeded")


def status_of(url: str, id: str) -> str:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT status FROM job_queue WHERE id = %s", (id,)).fetchone()
    return str(row[0]) if row else ""
