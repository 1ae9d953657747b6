"""Problems that the doctor finds in the ledger and in its jobs."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import apsw
import psycopg
import pytest

from ductile.clock import to_text
from ductile.engine.workspaces import Workspaces
from ductile.operations.doctor import ledger
from ductile.operations.why import explain_job
from ductile.store.engines import migrate
from ductile.store.engines.migrate import load_migrations
from ductile.store.engines.sqlite import SqliteLedger
from tests.engine.site import OK, Site
from tests.operations.doctor.harness import (
    ERROR,
    WARNING,
    examine,
    find_one,
    make_context,
    run_with_socket,
)
from tests.operations.ledger_copies import make_backup
from tests.postgres import a_server
from tests.store.conftest import execute
from tests.store.engines.sqlite.harness import damage_table
from tests.waiting import WAIT_LIMIT, until


@pytest.fixture
def place(site: Site) -> Site:
    """With one good plugin."""
    site.plugin("echo", OK)
    site.folder.chmod(0o700)
    return site


# The ledger


def test_a_ledger_that_cannot_be_read(place: Site) -> None:
    with place.opened():
        pass
    (place.state / "state.db").write_bytes(b"broken" * 2000)
    finding = find_one(examine(place), "the ledger cannot be read")
    assert finding.severity is ERROR
    ledger = place.state / "state.db"
    assert finding.run == f"sqlite3 {ledger} .recover | sqlite3 {ledger}.recovered"


def test_damaged_ledger_is_to_be_replaced_by_the_newest_good_backup(place: Site) -> None:
    backups = place.state / "backups"
    with place.running() as site_run:
        site_run.run("echo")
        for name in ("old.db", "good.db", "bad.db"):
            make_backup(site_run, backups / name)
    for age, name in enumerate(("bad.db", "good.db", "old.db")):
        os.utime(backups / name, (1000 - age, 1000 - age))
    damage_table(backups / "bad.db", "job_log")
    damage_table(place.state / "state.db", "job_log")
    finding = find_one(examine(place), "is damaged")
    config = place.folder / "config.yaml"
    assert finding.run == f"ductile system restore {backups / 'good.db'} --config {config}"
    with run_with_socket(place) as (_, asking):
        found = [each for each in examine(place, **asking) if "its settle fails" in each.what]
    assert [each.severity for each in found] == [ERROR]
    assert found[0].run is not None
    assert found[0].run.startswith("ductile system stop")
    assert f"system restore {backups / 'good.db'}" in found[0].run


def test_the_ledger_of_the_go_program_is_to_be_imported(place: Site) -> None:
    place.state.mkdir(mode=0o700)
    sql = (Path(__file__).parents[2] / "compat/ledger.sql").read_text()
    with closing(apsw.Connection(str(place.state / "state.db"))) as db:
        db.execute(sql)
    finding = find_one(examine(place), "the ledger cannot be read")
    assert "ductile system import" in finding.why
    assert finding.run == f"ductile system import --config {place.folder / 'config.yaml'}"


def test_server_that_cannot_be_reached_and_no_word_of_its_password(place: Site) -> None:
    url = "postgresql://me:a-password-of-ours@127.0.0.1:1/x?connect_timeout=1"
    place.settings["state"] = {"url": url, "dir": str(place.state)}
    finding = find_one(examine(place), "PostgreSQL at 127.0.0.1:1 cannot be read")
    assert "refused" in finding.why
    assert finding.run == "pg_isready -h 127.0.0.1 -p 1"
    assert "a-password-of-ours" not in str(finding)


def test_server_at_a_local_socket_is_named_by_its_directory(place: Site) -> None:
    url = f"postgresql:///x?host={place.folder}/none&port=7&connect_timeout=1"
    place.settings["state"] = {"url": url, "dir": str(place.state)}
    finding = find_one(examine(place), f"PostgreSQL at {place.folder}/none:7 cannot be read")
    assert finding.run == f"pg_isready -h {place.folder}/none -p 7"


def test_a_ledger_of_a_newer_version(place: Site) -> None:
    with place.opened() as site_run:
        execute(site_run.gateway.ledger, "INSERT INTO schema_migrations VALUES (9999, 'x', 'x')")
    assert find_one(examine(place), "migration 9999 is of a newer version").severity is ERROR


def test_a_promise_that_is_broken(place: Site) -> None:
    with place.running() as site_run:
        for _ in range(8):
            site_run.run("echo")
        execute(site_run.gateway.ledger, "UPDATE job_queue SET completed_at = NULL")
    found = examine(place)
    assert sum("has no completed_at" in finding.what for finding in found) == ledger.MAX_SHOWN
    assert find_one(found, "3 more violations").severity is ERROR


READER = (
    "import sys, time, apsw; c = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY);"
    "c.execute('BEGIN'); c.execute('SELECT * FROM boots').fetchall();"
    "print('reading', flush=True); sys.stdin.read()"
)


@contextmanager
def reader(path: Path) -> Iterator[int]:
    """A process that holds a read transaction."""
    process = subprocess.Popen(
        [sys.executable, "-c", READER, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"reading\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.wait(WAIT_LIMIT)
        process.stdout.close()


def test_a_process_that_keeps_the_wal_from_being_reset(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_with_socket(place) as (site_run, asking):
        site_run.run("echo")
        with reader(place.state / "state.db") as pid:
            site_run.run("echo")
            finding = find_one(examine(place, **asking), "holds a read transaction")
            assert (finding.severity, finding.run) == (WARNING, f"ps -o pid,lstart,cmd -p {pid}")
            assert finding.what.startswith(f"process {pid} ")
            monkeypatch.setattr(ledger, "LARGEST_WAL", 0)
            assert find_one(examine(place, **asking), "holds a read transaction").severity is ERROR
        assert find_one(examine(place, **asking), "the WAL has grown").severity is WARNING


def test_short_lived_reader_is_not_a_finding(place: Site) -> None:
    with run_with_socket(place) as (site_run, asking):
        site_run.run("echo")
        assert [f for f in examine(place, **asking) if "read transaction" in f.what] == []


def test_a_server_session_that_keeps_a_transaction_open(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with a_server() as postgres:
        url = postgres.database()
        place.settings["state"] = {"url": url, "dir": str(place.state)}
        with place.opened():
            pass
        monkeypatch.setattr(ledger, "HELD_FOR", timedelta(0))
        with psycopg.connect(url, application_name="a report") as session:
            session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            session.execute("SELECT * FROM boots")
            finding = find_one(examine(place), "of a report has a transaction open")
            assert (
                finding.run == f"psql -c 'SELECT pg_terminate_backend({session.info.backend_pid})'"
            )
        assert [finding.what for finding in examine(place)] == ["no gateway is running"]


def test_ledger_without_a_recent_backup_is_reported(place: Site) -> None:
    with place.opened():
        pass
    later = datetime.now(UTC) + timedelta(days=8)
    finding = find_one(examine(place, now=later), "there is no backup")
    assert finding.run is not None
    assert finding.run.startswith("ductile system backup")
    (place.state / "last-backup.json").write_text(
        f'{{"made_at": "{to_text(later - timedelta(days=9))}", "path": "x"}}'
    )
    assert find_one(examine(place, now=later), "the last backup is of").severity is WARNING
    (place.state / "last-backup.json").write_text(f'{{"made_at": "{to_text(later)}", "path": "x"}}')
    assert [f.what for f in examine(place, now=later)] == ["no gateway is running"]


# Work


def test_jobs_of_a_gateway_that_was_killed(place: Site) -> None:
    with place.opened() as site_run:
        site_run.put("echo")
        execute(site_run.gateway.ledger, "UPDATE job_queue SET status = 'running', owner = 'x'")
    finding = find_one(examine(place), "jobs that were running when the gateway died: 1")
    assert finding.severity is WARNING


def test_a_job_that_runs_far_too_long(place: Site) -> None:
    gate = place.gate()
    place.plugin("slow", gate.script() + OK, timeouts={"poll": "40s"})
    with run_with_socket(place) as (site_run, asking):
        job_id = site_run.put("slow")
        gate.arrived()
        now = datetime.now(UTC)
        assert examine(place, now=now + timedelta(seconds=60), **asking) == []
        [finding] = examine(place, now=now + timedelta(seconds=90), **asking)
        gate.open()
        site_run.ended(job_id)
    assert (finding.severity, finding.topic) == (ERROR, "jobs")
    assert finding.run is not None
    assert finding.run.startswith(f"ductile job cancel {job_id}")


def test_jobs_of_a_plugin_that_no_root_has(place: Site) -> None:
    with place.opened() as site_run:
        execute(
            site_run.gateway.ledger,
            "INSERT INTO job_queue (id, plugin, command, status, submitted_by, created_at)"
            " VALUES ('a', 'gone', 'poll', 'queued', 'cli', '2026-02-08T10:00:00Z')",
        )
    why = "no plugin root has a plugin named gone; they wait until it returns"
    assert find_one(examine(place), "queued jobs of gone: 1").why == why


def test_jobs_that_wait_for_very_long(place: Site) -> None:
    gate = place.gate()
    place.plugin("slow", gate.script() + OK, parallelism=1, timeouts={"poll": "2h"})
    with run_with_socket(place) as (site_run, asking):
        jobs = [site_run.put("slow"), site_run.put("slow")]
        gate.arrived()
        later = datetime.now(UTC) + timedelta(minutes=16)
        finding = find_one(
            examine(place, now=later, **asking), "queued jobs of slow: 1, the oldest"
        )
        gate.open(2)
        for job_id in jobs:
            site_run.ended(job_id)
    assert "at most 1 of them run at a time" in finding.why


def open_breaker(place: Site, plugin: str) -> None:
    with place.opened() as site_run:
        execute(
            site_run.gateway.ledger,
            "INSERT INTO circuit_breakers (plugin, command, state, failure_count, updated_at)"
            f" VALUES ('{plugin}', 'poll', 'open', 3, '2026')",
        )


def test_a_breaker_that_is_open(place: Site) -> None:
    open_breaker(place, "echo")
    finding = find_one(examine(place), "the breaker of echo poll is open")
    assert finding.run is not None
    assert finding.run.startswith("ductile plugin reset-breaker echo")


def test_breaker_of_a_plugin_that_is_gone_is_nothing_to_look_after(place: Site) -> None:
    open_breaker(place, "gone")
    assert [f.what for f in examine(place) if "breaker" in f.what] == []


def test_every_open_breaker_is_reported_if_the_configuration_does_not_load(place: Site) -> None:
    open_breaker(place, "echo")
    place.settings["nonsense"] = True
    assert find_one(examine(place), "the breaker of echo poll is open")


def test_jobs_and_deliveries_that_were_given_up(place: Site) -> None:
    place.plugin("bad", "exit 1", retry={"max_attempts": 1})
    with place.running() as site_run:
        dead = site_run.run("bad")
        assert dead["status"] == "dead"
        # Recent ones: the retention deletes old ones at any moment.
        now = to_text(site_run.gateway.clock.now())
        sql = (
            "INSERT INTO webhook_configs (id, source_identifier, event_type, agent_intent,"
            " target_session, secret) VALUES (1, 'a', 'b', 'c', 'd', 'e');"
            "INSERT INTO webhook_deliveries (webhook_id, session_id, payload, target_url,"
            " signature, status, attempt_count, created_at)"
            f" VALUES (1, 's', '', 'u', 's', 'dead', 6, '{now}');"
            "INSERT INTO relay_deliveries (id, instance, event_id, event_type, body, status,"
            f" attempt_count, created_at) VALUES ('r', 'i', 'e', 't', '', 'dead', 9, '{now}')"
        )
        execute(site_run.gateway.ledger, sql)
    found = examine(place)
    explained = find_one(found, "dead jobs of bad poll: 1").run
    assert str(explained).startswith(f"ductile job why {dead['id']}")
    assert find_one(found, "dead webhook deliveries: 1")
    assert find_one(found, "dead relay deliveries: 1")
    later = datetime.now(UTC) + timedelta(days=8)
    assert [f for f in examine(place, now=later) if "jobs that were given up" in f.what] == []


def test_a_schedule_that_is_paused(place: Site) -> None:
    place.plugin("echo", OK, schedules=[{"id": "night", "every": "1h"}])
    with place.running() as site_run:
        until(lambda: site_run.gateway.ledger.read(lambda tx: tx.dicts("entries")))
        execute(site_run.gateway.ledger, "UPDATE schedule_entries SET paused = 1")
    finding = find_one(examine(place), "schedule echo/night is paused")
    assert finding.run is not None
    assert finding.run.startswith("ductile schedule resume echo/night")


def test_a_schedule_of_a_missing_plugin(place: Site) -> None:
    place.settings["plugins"]["ghost"] = {"schedules": [{"every": "1h"}]}
    found = [f for f in examine(place) if f.topic == "schedules"]
    assert [finding.severity for finding in found] == [ERROR]
    assert found[0].what.endswith("cannot fire")


def test_a_schedule_that_has_never_fired(place: Site) -> None:
    place.plugin("echo", OK, schedules=[{"id": "rare", "cron": "0 0 29 2 *"}])
    with place.running() as site_run:
        until(lambda: site_run.gateway.ledger.read(lambda tx: tx.dicts("entries")))
    later = datetime.now(UTC) + timedelta(days=8)
    finding = find_one(examine(place, now=later), "schedule echo/rare has never fired")
    assert "0 0 29 2 *" in finding.why


def test_jobs_that_wait_for_room_for_their_files(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "12 MiB are wanted")

    place.settings["service"]["workspaces"] = True
    monkeypatch.setattr(Workspaces, "provide", full)
    with place.running() as site_run:
        id = site_run.put("echo")
        site_run.notice("job.retrying", id)
        gateway = site_run.gateway
        why = explain_job(gateway.ledger, id, gateway.compiled, {}, now=gateway.clock.now())["why"]
        finding = find_one(examine(place), "wait for disk space")
        execute(site_run.gateway.ledger, "UPDATE job_queue SET next_retry_at = NULL")
        find_one(examine(place), "wait for disk space")
    assert finding.severity is ERROR
    assert id in finding.what
    assert "no workspace: 12 MiB are wanted" in finding.why
    assert why[1].endswith("after: no workspace: 12 MiB are wanted.")


def test_a_schedule_that_was_due_and_did_not_fire(place: Site) -> None:
    place.plugin("echo", OK, schedules=[{"id": "often", "every": "1h"}])
    with run_with_socket(place) as (site_run, asking):
        read_entries = partial(site_run.gateway.ledger.read, lambda tx: tx.dicts("entries"))
        # The next occurrence of `every` is known when the run has ended.
        until(lambda: read_entries()[0]["last_success_at"])
        # Of the occurrences that were missed, the last one is due.
        later = datetime.now(UTC) + timedelta(hours=3, minutes=30)
        finding = find_one(examine(place, now=later, **asking), "was due at")
    assert finding.severity is ERROR


def test_rows_of_a_ledger_with_unknown_migrations_are_not_judged(
    place: Site,
) -> None:
    with place.opened() as site_run:
        execute(site_run.gateway.ledger, "UPDATE schema_migrations SET checksum = 'x'")
    subject = make_context(place)
    assert (subject.behind, subject.rows) == (-1, None)
    subject.close()


def test_ledger_of_an_older_version_is_not_an_error(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.state.mkdir(mode=0o700)
    with monkeypatch.context() as older:
        older.setattr(migrate, "load_migrations", lambda engine: load_migrations(engine)[:1])
        old = SqliteLedger(place.state / "state.db")
        old.start()
        old.close()
    found = examine(place)
    assert find_one(found, "missing migrations").severity is WARNING
    assert [finding.what for finding in found if finding.severity is ERROR] == []
