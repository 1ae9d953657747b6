"""A restore leaves the old ledger or the new one, whole, and keeps what it replaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from ductile.errors import LedgerError, Locked, NotFound, Refused
from ductile.operations.backup import back_up
from ductile.operations.verify import verify_ledger
from ductile.store import notices
from ductile.store.engines import migrate
from ductile.store.engines.api import BEGINNING
from ductile.store.engines.migrate import load_migrations
from ductile.store.engines.sqlite import SqliteLedger
from tests.engine.site import OK, Site
from tests.operations.ledger_copies import (
    CLOCK,
    damage_file,
    execute_sql,
    make_backup,
    on_postgres,
    open_read_only,
    read_jobs,
    read_jobs_of_file,
    read_jobs_of_site,
    restore_copy,
)
from tests.postgres import Server
from tests.waiting import until


def test_a_restore_brings_back_what_was_and_keeps_what_is(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as site_run:
        first = site_run.run("echo")["id"]
        make_backup(site_run, target)
        second = site_run.run("echo")["id"]
    done = restore_copy(place, target)
    assert read_jobs_of_site(place) == {first: "succeeded"}
    assert done.kept is not None
    assert kept_jobs(place, done.kept) == {first, second}
    ledger = open_read_only(place)
    assert verify_ledger(ledger, place.state).ok
    ledger.close()
    with place.running() as site_run:
        assert site_run.run("echo")["status"] == "succeeded"
    assert len(read_jobs_of_site(place)) == 2


def kept_jobs(site: Site, kept: str) -> set[str]:
    url = site.settings["state"].get("url")
    if url is None:
        assert kept.startswith(str(site.state / "state.db.replaced-"))
        return set(read_jobs_of_file(Path(kept)))
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT id FROM {kept.removeprefix('schema ')}.job_queue")
        return {row[0] for row in rows}


def test_jobs_that_ran_in_the_copy_are_recovered_at_the_next_start(
    place: Site, folder: Path
) -> None:
    gate, target = place.gate(), folder / "ledger.db"
    place.plugin("slow", gate.script() + OK, retry={"max_attempts": 3, "backoff_base": "10ms"})
    with place.running() as site_run:
        job_id = site_run.put("slow")
        gate.arrived()
        made = make_backup(site_run, target)
        gate.open()
        site_run.ended(job_id)
    assert made.notes == ["running jobs: 1; the next start recovers them"]
    restore_copy(place, target)
    assert read_jobs_of_site(place) == {job_id: "running"}
    with place.running() as site_run:
        gate.arrived()
        gate.open()
        job = site_run.ended(job_id)
    assert (job["status"], job["attempt"]) == ("succeeded", 2)


def test_nothing_is_restored_under_a_running_gateway(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as site_run:
        make_backup(site_run, target)
        with pytest.raises(Locked):
            restore_copy(place, target)
        assert site_run.run("echo")["status"] == "succeeded"
    assert len(read_jobs_of_site(place)) == 1


def test_a_gateway_of_another_machine_is_not_restored_under(
    site: Site, postgres: Server, folder: Path
) -> None:
    on_postgres(site, postgres)
    target = folder / "ledger.db"
    with site.running() as site_run:
        make_backup(site_run, target)
        site.settings["state"]["dir"] = str(site.folder / "elsewhere")
        with pytest.raises(Locked, match="another machine"):
            restore_copy(site, target)
    assert restore_copy(site, target).kept is not None


def test_a_dry_run_checks_and_changes_nothing(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as site_run:
        make_backup(site_run, target)
        job_id = site_run.run("echo")["id"]
    before = sorted(os.listdir(place.state))
    done = restore_copy(place, target, dry=True)
    assert (done.kept, done.rows["job_queue"]) == (None, 0)
    assert read_jobs_of_site(place) == {job_id: "succeeded"}
    assert [n for n in sorted(os.listdir(place.state)) if "-wal" not in n and "-shm" not in n] == [
        n for n in before if "-wal" not in n and "-shm" not in n
    ]


def test_where_there_was_no_ledger_none_is_kept(place: Site, folder: Path) -> None:
    source = folder / "ledger.db"
    fresh = SqliteLedger(source)
    fresh.start()
    fresh.close()
    assert restore_copy(place, source).kept is None
    assert read_jobs_of_site(place) == {}


def refusals(folder: Path) -> dict[str, Callable[[Path], object]]:
    def foreign(path: Path) -> None:
        connection = apsw.Connection(str(path))
        connection.execute("CREATE TABLE t (a)")
        connection.close()

    return {
        "garbage": lambda path: path.write_bytes(b"x" * 10_000),
        "empty": lambda path: path.write_bytes(b""),
        "foreign": foreign,
    }


@pytest.mark.parametrize("kind", ["garbage", "empty", "foreign"])
def test_file_that_is_not_a_backup_is_refused(site: Site, folder: Path, kind: str) -> None:
    source = folder / "ledger.db"
    refusals(folder)[kind](source)
    with pytest.raises(Refused, match="is not a backup that can be read"):
        restore_copy(site, source)
    assert not (site.state / "state.db").exists()
    assert [name for name in os.listdir(site.state) if name.startswith(".")] == []


def test_missing_backup_is_refused(site: Site, folder: Path) -> None:
    with pytest.raises(NotFound):
        restore_copy(site, folder / "nothing.db")
    with pytest.raises(NotFound):
        restore_copy(site, folder)


def test_ledger_is_not_accepted_as_its_own_backup(site: Site) -> None:
    with site.opened():
        pass
    with pytest.raises(Refused, match="the ledger itself"):
        restore_copy(site, site.state / "state.db")


@pytest.fixture
def copy(site: Site, folder: Path) -> Path:
    """Of a ledger with fifty jobs."""
    site.plugin("echo", OK)
    with site.running() as site_run:
        for id in [site_run.put("echo") for _ in range(50)]:
            site_run.ended(id)
        make_backup(site_run, folder / "ledger.db")
    return folder / "ledger.db"


def test_a_damaged_copy_is_refused(site: Site, copy: Path) -> None:
    damage_file(copy)
    with pytest.raises(Refused, match=r"damaged|malformed"):
        restore_copy(site, copy, allow_violations=True)
    assert len(read_jobs_of_site(site)) == 50


def test_a_copy_of_a_newer_version_is_refused(site: Site, copy: Path) -> None:
    execute_sql(copy, "INSERT INTO schema_migrations VALUES (9999, 'later', 'x')")
    with pytest.raises(LedgerError, match="newer version"):
        restore_copy(site, copy)


def test_copy_that_breaks_promises_is_taken_only_when_that_is_accepted(
    site: Site, copy: Path
) -> None:
    execute_sql(copy, "UPDATE job_queue SET completed_at = NULL")
    with pytest.raises(Refused, match="has 50 violations") as refused:
        restore_copy(site, copy)
    assert refused.value.details["breaches"]
    assert restore_copy(site, copy, allow_violations=True).rows["job_queue"] == 50


def test_a_copy_of_an_older_version_is_brought_forward(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder / "old.db"
    with monkeypatch.context() as older:
        older.setattr(migrate, "load_migrations", lambda engine: load_migrations(engine)[:1])
        old = SqliteLedger(source)
        old.start()
        old.close()
    done = restore_copy(site, source)
    assert done.migrated == [m.number for m in load_migrations("sqlite")][1:]
    ledger = open_read_only(site)
    report = verify_ledger(ledger, site.state)
    ledger.close()
    assert (report.ok, report.notes) == (True, [])
    assert [name for name in os.listdir(site.state) if "before" in name] == []


def test_a_ledger_that_is_beyond_reading_is_kept_with_its_wal(site: Site, copy: Path) -> None:
    ledger = site.state / "state.db"
    ledger.write_bytes(b"broken" * 5000)
    wal = site.state / "state.db-wal"
    wal.write_bytes(b"frames")
    done = restore_copy(site, copy)
    assert not wal.exists()
    assert done.kept is not None
    assert Path(done.kept).read_bytes() == b"broken" * 5000
    assert Path(done.kept + "-wal").read_bytes() == b"frames"
    assert len(read_jobs_of_site(site)) == 50


def test_nothing_is_restored_while_a_process_has_the_ledger_open(site: Site, copy: Path) -> None:
    """Who would go on with the file that was there."""
    with closing(apsw.Connection(str(site.state / "state.db"))) as reader:
        reader.execute("SELECT count(*) FROM job_queue").fetchall()
        before = sorted(os.listdir(site.state))
        with pytest.raises(Refused, match=r"another process has the ledger .*/state\.db open"):
            restore_copy(site, copy)
        assert sorted(os.listdir(site.state)) == before
    assert restore_copy(site, copy).kept is not None


LATE = (
    "import os, signal, sys; from pathlib import Path;"
    "from ductile.store.engines.sqlite_connection import connect; c = connect(Path(sys.argv[1]));"
    "c.execute(\"INSERT INTO plugin_state VALUES ('late', '{}', NULL)\");"
    "os.kill(os.getpid(), signal.SIGKILL)"
)


def commit_and_die(ledger: Path) -> None:
    """Like a killed gateway: its last commit is only in the WAL."""
    subprocess.run([sys.executable, "-c", LATE, str(ledger)], check=False)
    assert ledger.with_name(f"{ledger.name}-wal").stat().st_size > 0


def states_at(path: Path) -> list[object]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [row[0] for row in connection.execute("SELECT plugin_name FROM plugin_state")]
    connection.close()
    return found


def test_commits_in_the_wal_of_the_replaced_ledger_are_kept(site: Site, copy: Path) -> None:
    commit_and_die(site.state / "state.db")
    done = restore_copy(site, copy)
    assert done.kept is not None
    assert not Path(f"{done.kept}-wal").exists()
    assert states_at(Path(done.kept)) == ["late"]
    assert not (site.state / "state.db-wal").exists()


RESTORE = (
    "import os, sys; from pathlib import Path;"
    "from ductile.clock import SystemClock; from ductile.config import load;"
    "from ductile.operations.restore import restore;"
    "restore(load(Path(sys.argv[1]), environ=os.environ).settings, Path(sys.argv[2]),"
    " now=SystemClock().now())"
)


def killed_at(site: Site, failpoint: str, source: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RESTORE, str(site.write()), str(source)],
        env={**os.environ, "DUCTILE_FAILPOINT": failpoint},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("failpoint", "jobs"),
    [("restore.synced", 51), ("restore.kept", 51), ("restore.replaced", 50)],
)
def test_a_power_cut_leaves_the_old_ledger_or_the_new_one_whole(
    site: Site, copy: Path, failpoint: str, jobs: int
) -> None:
    with site.running() as site_run:
        site_run.run("echo")
    commit_and_die(site.state / "state.db")
    killed_at(site, failpoint, copy)
    ledger = open_read_only(site)
    assert verify_ledger(ledger, site.state).ok
    assert len(read_jobs(ledger)) == jobs
    ledger.close()
    assert states_at(site.state / "state.db") == (["late"] if jobs == 51 else [])
    restore_copy(site, copy)
    assert len(read_jobs_of_site(site)) == 50
    assert [name for name in os.listdir(site.state) if name.startswith(".ductile")] == []


def test_a_power_cut_leaves_a_database_as_it_was(site: Site, postgres: Server, copy: Path) -> None:
    on_postgres(site, postgres)
    with site.running() as site_run:
        job_id = site_run.run("echo")["id"]
    killed_at(site, "restore.loaded", copy)
    until(lambda: read_jobs_of_site(site) == {job_id: "succeeded"})
    restore_copy(site, copy)
    assert len(read_jobs_of_site(site)) == 50


def test_a_ledger_moves_from_one_engine_to_the_other_and_back(
    site: Site, postgres: Server, copy: Path, folder: Path
) -> None:
    on_file = dict(site.settings["state"])
    before = contents(copy)
    on_postgres(site, postgres)
    restore_copy(site, copy)
    back = folder / "back.db"
    ledger = open_read_only(site)
    assert len(ledger.read(lambda tx: notices.list_after(tx, BEGINNING))) == len(before["notices"])
    back_up(ledger, back, state_dir=site.state, clock=CLOCK)
    ledger.close()
    assert contents(back) == before
    site.settings["state"] = on_file
    restore_copy(site, back)
    assert contents(site.state / "state.db") == before


def test_notices_of_another_servers_transactions_can_be_followed(
    site: Site, postgres: Server, copy: Path
) -> None:
    """Its transactions are numbered far ahead of this server's."""
    execute_sql(copy, "UPDATE notices SET xact = 1 << 40")
    on_postgres(site, postgres)
    restore_copy(site, copy)
    ledger = open_read_only(site)
    assert len(ledger.read(lambda tx: notices.list_after(tx, BEGINNING))) == len(
        contents(copy)["notices"]
    )
    ledger.close()


def contents(path: Path) -> dict[str, list[Any]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    names = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_stat%'"
    ).fetchall()
    found = {
        str(name): sorted(connection.execute(f"SELECT * FROM {name}").fetchall(), key=repr)
        for (name,) in names
    }
    connection.close()
    return found


def test_wal_without_its_database_is_kept(site: Site, copy: Path) -> None:
    """It has the newest commits; a gateway does not start on it, but a restore may replace it."""
    ledger = site.state / "state.db"
    ledger.unlink()
    wal = ledger.with_name("state.db-wal")
    wal.write_bytes(b"the newest commits")
    with pytest.raises(LedgerError, match="newest commits"), site.opened():
        pass
    done = restore_copy(site, copy)
    assert done.kept is not None
    assert Path(f"{done.kept}-wal").read_bytes() == b"the newest commits"
    with site.running() as running:
        assert running.run("echo")["status"] == "succeeded"
