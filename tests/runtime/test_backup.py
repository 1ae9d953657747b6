"""Backups are whole, checked and private; a restore leaves the old ledger or the new one."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from ductile.clock import SystemClock
from ductile.errors import DuctileError, LedgerError, Locked, NotFound, Refused
from ductile.runtime import backup
from ductile.runtime.backup import Backups, back_up
from ductile.runtime.restore import Restored, restore
from ductile.runtime.selfcheck import selfcheck
from ductile.store import migrate, notices
from ductile.store.ledger import BEGINNING, Ledger
from ductile.store.migrate import migrations
from ductile.store.open import open_ledger
from ductile.store.sqlite import SqliteLedger
from tests.postgres import Server
from tests.runtime.site import OK, Running, Site, until
from tests.store.conftest import execute

CLOCK = SystemClock()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    directory = Path(tempfile.mkdtemp(prefix="dpg"))
    server = Server(directory)
    yield server
    server.stop()
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, site: Site) -> Site:
    """A site with one plugin, on each engine."""
    if request.param == "postgres":
        on_postgres(site, request.getfixturevalue("server"), request.node.name)
    site.plugin("echo", OK)
    return site


def on_postgres(site: Site, server: Server, name: str) -> str:
    url = server.database(f"b{abs(hash(name))}")
    site.settings["state"] = {"url": url, "dir": str(site.state)}
    return url


@pytest.fixture
def folder(site: Site) -> Path:
    found = site.folder / "copies"
    found.mkdir()
    return found


def copied(house: Running, target: Path, **more: Any) -> backup.Made:
    gateway = house.gateway
    return back_up(gateway.ledger, target, state_dir=gateway.state_dir, clock=CLOCK, **more)


def put_back(site: Site, path: Path, **more: Any) -> Restored:
    return restore(site.load().settings, path, now=CLOCK.now(), **more)


def looked_at(site: Site) -> Ledger:
    state = site.load().settings.state
    return open_ledger(path=state.path, url=state.url, read_only=True)


def jobs_in(ledger: Ledger) -> dict[str, str]:
    rows = ledger.read(
        lambda tx: tx.dicts(
            "jobs",
            status=None,
            plugin=None,
            command=None,
            submitted_by=None,
            before=None,
            limit=100_000,
        )
    )
    return {row["id"]: row["status"] for row in rows}


def jobs_at(path: Path) -> dict[str, str]:
    ledger = SqliteLedger(path, read_only=True)
    try:
        return jobs_in(ledger)
    finally:
        ledger.close()


def jobs_of(site: Site) -> dict[str, str]:
    ledger = looked_at(site)
    try:
        return jobs_in(ledger)
    finally:
        ledger.close()


def at_least(accepted: list[str], count: int) -> bool:
    return len(accepted) >= count


# Making one


def test_a_copy_of_a_running_gateway_is_one_private_file_that_is_whole(
    place: Site, folder: Path
) -> None:
    target = folder / "ledger.db"
    with place.running() as house:
        job = house.run("echo")
        made = copied(house, target)
    assert jobs_at(target) == {job["id"]: "succeeded"}
    assert os.listdir(folder) == ["ledger.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (made.path, made.bytes) == (str(target), target.stat().st_size)
    assert made.rows["job_queue"] == 1
    last = backup.last_backup(place.state)
    assert last == {"made_at": made.made_at, "path": str(target)}


def test_a_ledger_that_is_written_hard_is_copied_consistently(place: Site, folder: Path) -> None:
    accepted: list[str] = []
    stop = threading.Event()

    def produce(house: Running) -> None:
        while not stop.is_set():
            accepted.append(house.put("echo", payload={"text": "x" * 2000}))

    with place.running() as house:
        threads = [threading.Thread(target=produce, args=(house,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(accepted) > 200)
            for number in range(3):
                before = set(accepted)
                target = folder / f"{number}.db"
                made = copied(house, target)
                assert before <= jobs_at(target).keys()
                assert not [note for note in made.notes if "breaks" in note]
                more = len(accepted) + 1
                until(partial(at_least, accepted, more))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_what_is_committed_while_the_copy_is_made_is_not_in_it(site: Site, folder: Path) -> None:
    site.plugin("echo", OK)
    target = folder / "ledger.db"
    with site.opened() as house:
        first = house.put("echo")
        late: list[str] = []

        def watch(_done: int, _total: int) -> None:
            late.append(house.put("echo"))

        copied(house, target, watch=watch)
        assert late
    assert jobs_at(target) == {first: "queued"}


def test_nothing_takes_the_place_of_a_file_that_is_there(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    target.write_text("mine")
    with place.opened() as house:
        with pytest.raises(Refused, match="exists"):
            copied(house, target)
        assert target.read_text() == "mine"
        copied(house, target, replace=True)
    assert jobs_at(target) == {}


def test_a_file_that_appears_meanwhile_stays(site: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with site.opened() as house, pytest.raises(Refused, match="exists"):
        copied(house, target, tell=lambda _table, _rows: target.write_text("mine"))
    assert target.read_text() == "mine"
    assert os.listdir(folder) == ["ledger.db"]


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "ductile.lock"])
def test_the_gateways_own_files_are_no_target(site: Site, name: str) -> None:
    site.state.mkdir()
    ledger = site.state / "state.db"
    (site.folder / "link").symlink_to(site.state)
    for path in (site.state / name, site.folder / "link" / name):
        with pytest.raises(Refused, match="own"):
            backup.target_for(path, site.state, ledger, CLOCK.now())


def test_a_directory_gets_a_file_that_is_named_after_the_time(site: Site, folder: Path) -> None:
    now = CLOCK.now()
    target = backup.target_for(folder, site.state, None, now)
    assert target == folder / f"ledger-{backup.stamp(now)}.db"
    assert backup.target_for(None, site.state, None, now).parent == site.state / "backups"


def test_a_directory_that_is_not_there_is_not_made(site: Site, folder: Path) -> None:
    with site.opened() as house, pytest.raises(Refused, match="no directory"):
        copied(house, folder / "a" / "b.db")
    assert os.listdir(folder) == []


def test_the_usual_directory_is_made_and_private(site: Site) -> None:
    with site.opened() as house:
        made = copied(house, backup.default_target(site.state, CLOCK.now()))
    assert stat.S_IMODE((site.state / "backups").stat().st_mode) == 0o700
    assert Path(made.path).is_file()


def test_a_disk_is_not_filled_with_a_copy(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.opened() as house:
        copied(house, folder / "ledger.db")
        monkeypatch.setattr(backup, "LEFT_FREE", 2**60)
        with pytest.raises(Refused, match="have to stay free"):
            copied(house, folder / "second.db")
    with pytest.raises(Refused, match="have to stay free"):
        put_back(site, folder / "ledger.db")
    assert os.listdir(folder) == ["ledger.db"]


def test_a_copy_that_ends_before_its_end_leaves_nothing(place: Site, folder: Path) -> None:
    def watch(_done: int, _total: int) -> None:
        raise RuntimeError("enough")

    with place.running() as house:
        house.run("echo")
        with pytest.raises(RuntimeError):
            copied(house, folder / "ledger.db", watch=watch)
    assert os.listdir(folder) == []
    assert backup.last_backup(place.state) is None


def test_drafts_of_makers_that_died_are_cleared_away_and_others_are_not(
    site: Site, folder: Path
) -> None:
    dead, alive = (folder / f"{backup.DRAFT}{name}.db" for name in ("dead", "alive"))
    for draft in (dead, alive):
        draft.write_text("")
    long_ago = time.time() - backup.ABANDONED - 1
    os.utime(dead, (long_ago, long_ago))
    with site.opened() as house:
        copied(house, folder / "ledger.db")
    assert sorted(os.listdir(folder)) == sorted([alive.name, "ledger.db"])


def test_a_damaged_ledger_is_not_passed_off_as_a_backup(site: Site, folder: Path) -> None:
    site.plugin("echo", OK)
    with site.running() as house:
        for _ in range(50):
            house.run("echo")
    damage(site.state / "state.db")
    ledger = looked_at(site)
    with pytest.raises(DuctileError, match=r"damaged|malformed"):
        back_up(ledger, folder / "ledger.db", state_dir=site.state, clock=CLOCK)
    ledger.close()
    assert os.listdir(folder) == []


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for page in range(20, len(data) // 4096):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(data)


def test_a_ledger_that_breaks_a_promise_is_copied_and_that_is_said(
    place: Site, folder: Path
) -> None:
    with place.running() as house:
        house.run("echo")
        house.run("echo")
        execute(house.gateway.ledger, "UPDATE job_queue SET completed_at = NULL")
        made = copied(house, folder / "ledger.db")
        assert "breaks 2 of its promises" in made.notes[-1]
        execute(house.gateway.ledger, "UPDATE job_queue SET completed_at = created_at")


def test_a_gateway_makes_one_backup_at_a_time(site: Site, folder: Path) -> None:
    with site.opened() as house:
        gate, reached = threading.Event(), threading.Event()
        slow = _Slow(house.gateway.ledger, gate, reached)
        backups = Backups(lambda: slow, site.state, CLOCK)  # type: ignore[arg-type, return-value]
        assert backups.state()["state"] == "none"
        backups.start(folder / "a.db", replace=False)
        assert reached.wait(10)
        assert backups.wait(0.0)["state"] == "copying"
        with pytest.raises(Refused, match="being made already"):
            backups.start(folder / "b.db", replace=False)
        gate.set()
        state = backups.wait(30)
        assert (state["state"], state["made"]["path"]) == ("done", str(folder / "a.db"))
        backups.stop()


def test_a_stop_ends_the_backup_that_is_being_made(site: Site, folder: Path) -> None:
    with site.opened() as house:
        gate, reached = threading.Event(), threading.Event()
        slow = _Slow(house.gateway.ledger, gate, reached)
        backups = Backups(lambda: slow, site.state, CLOCK)  # type: ignore[arg-type, return-value]
        backups.start(folder / "a.db", replace=False)
        assert reached.wait(10)
        threading.Timer(0.05, gate.set).start()
        backups.stop()
        state = backups.state()
        assert (state["state"], state["code"]) == ("failed", "stopped")
        with pytest.raises(Refused):
            backups.start(folder / "b.db", replace=False)
    assert os.listdir(folder) == []


def test_a_stop_does_not_wait_for_the_check_of_a_copy(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "BETWEEN_WINDOWS", 0.2)
    with site.opened() as house:
        backups = Backups(lambda: house.gateway.ledger, site.state, CLOCK)
        backups.start(folder / "a.db", replace=False)
        until(lambda: backups.state()["state"] == "checking")
        backups.stop()
        assert backups.state()["code"] == "stopped"
    assert os.listdir(folder) == []


class _Slow:
    """A ledger whose copy waits, once it has begun, until it is let go on."""

    def __init__(self, ledger: Ledger, gate: threading.Event, reached: threading.Event) -> None:
        self._ledger, self._gate, self._reached = ledger, gate, reached

    def backup(self, target: Path, watch: Callable[[int, int], None]) -> None:
        def waiting(done: int, total: int) -> None:
            self._reached.set()
            assert self._gate.wait(10)
            watch(done, total)

        self._ledger.backup(target, waiting)


def test_the_configuration_is_archived_as_it_was_loaded(site: Site, folder: Path) -> None:
    loaded = site.load()
    target = folder / "config.tar"
    names = backup.config_archive(loaded, target)
    assert names == [str(site.folder / "config.yaml")]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    with tarfile.open(target) as archive:
        file = archive.extractfile(names[0].lstrip("/"))
        assert file is not None
        assert file.read() == (site.folder / "config.yaml").read_bytes()
    (site.folder / "config.yaml").write_text("service: {}")
    with pytest.raises(Refused, match="has changed"):
        backup.config_archive(loaded, target)


# Putting one back


def test_a_restore_brings_back_what_was_and_keeps_what_is(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as house:
        first = house.run("echo")["id"]
        copied(house, target)
        second = house.run("echo")["id"]
    done = put_back(place, target)
    assert jobs_of(place) == {first: "succeeded"}
    assert done.kept is not None
    assert kept_jobs(place, done.kept) == {first, second}
    ledger = looked_at(place)
    assert selfcheck(ledger, place.state).ok
    ledger.close()
    with place.running() as house:
        assert house.run("echo")["status"] == "succeeded"
    assert len(jobs_of(place)) == 2


def kept_jobs(site: Site, kept: str) -> set[str]:
    url = site.settings["state"].get("url")
    if url is None:
        assert kept.startswith(str(site.state / "state.db.replaced-"))
        return set(jobs_at(Path(kept)))
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT id FROM {kept.removeprefix('schema ')}.job_queue")
        return {row[0] for row in rows}


def test_jobs_that_ran_in_the_copy_are_recovered_at_the_next_start(
    place: Site, folder: Path
) -> None:
    gate, target = place.gate(), folder / "ledger.db"
    place.plugin("slow", gate.script() + OK, retry={"max_attempts": 3, "backoff_base": "10ms"})
    with place.running() as house:
        job_id = house.put("slow")
        gate.arrived()
        made = copied(house, target)
        gate.open()
        house.ended(job_id)
    assert made.notes == ["1 running when it was left, to be recovered by a start"]
    put_back(place, target)
    assert jobs_of(place) == {job_id: "running"}
    with place.running() as house:
        gate.arrived()
        gate.open()
        job = house.ended(job_id)
    assert (job["status"], job["attempt"]) == ("succeeded", 2)


def test_nothing_is_restored_under_a_running_gateway(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as house:
        copied(house, target)
        with pytest.raises(Locked):
            put_back(place, target)
        assert house.run("echo")["status"] == "succeeded"
    assert len(jobs_of(place)) == 1


def test_a_gateway_of_another_machine_is_not_restored_under(
    site: Site, server: Server, folder: Path, request: pytest.FixtureRequest
) -> None:
    on_postgres(site, server, request.node.name)
    target = folder / "ledger.db"
    with site.running() as house:
        copied(house, target)
        site.settings["state"]["dir"] = str(site.folder / "elsewhere")
        with pytest.raises(Locked, match="another machine"):
            put_back(site, target)
    assert put_back(site, target).kept is not None


def test_a_dry_run_checks_and_changes_nothing(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with place.running() as house:
        copied(house, target)
        job_id = house.run("echo")["id"]
    before = sorted(os.listdir(place.state))
    done = put_back(place, target, dry=True)
    assert (done.kept, done.rows["job_queue"]) == (None, 0)
    assert jobs_of(place) == {job_id: "succeeded"}
    assert [n for n in sorted(os.listdir(place.state)) if "-wal" not in n and "-shm" not in n] == [
        n for n in before if "-wal" not in n and "-shm" not in n
    ]


def test_where_there_was_no_ledger_none_is_kept(place: Site, folder: Path) -> None:
    source = folder / "ledger.db"
    fresh = SqliteLedger(source)
    fresh.start()
    fresh.close()
    assert put_back(place, source).kept is None
    assert jobs_of(place) == {}


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
def test_what_is_no_backup_is_refused(site: Site, folder: Path, kind: str) -> None:
    source = folder / "ledger.db"
    refusals(folder)[kind](source)
    with pytest.raises(Refused, match="is not a backup that can be read"):
        put_back(site, source)
    assert not (site.state / "state.db").exists()
    assert [name for name in os.listdir(site.state) if name.startswith(".")] == []


def test_what_is_not_there_is_refused(site: Site, folder: Path) -> None:
    with pytest.raises(NotFound):
        put_back(site, folder / "nothing.db")
    with pytest.raises(NotFound):
        put_back(site, folder)


def test_the_ledger_itself_is_no_backup_of_it(site: Site) -> None:
    with site.opened():
        pass
    with pytest.raises(Refused, match="the ledger itself"):
        put_back(site, site.state / "state.db")


@pytest.fixture
def copy(site: Site, folder: Path) -> Path:
    """Of a ledger with fifty jobs."""
    site.plugin("echo", OK)
    with site.running() as house:
        for id in [house.put("echo") for _ in range(50)]:
            house.ended(id)
        copied(house, folder / "ledger.db")
    return folder / "ledger.db"


def test_a_damaged_copy_is_refused(site: Site, copy: Path) -> None:
    damage(copy)
    with pytest.raises(Refused, match=r"damaged|malformed"):
        put_back(site, copy, accept_breaches=True)
    assert len(jobs_of(site)) == 50


def changed(path: Path, sql: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(sql)
    connection.close()


def test_a_copy_of_a_newer_version_is_refused(site: Site, copy: Path) -> None:
    changed(copy, "INSERT INTO schema_migrations VALUES (9999, 'later', 'x')")
    with pytest.raises(LedgerError, match="newer version"):
        put_back(site, copy)


def test_a_copy_that_breaks_promises_is_taken_only_when_that_is_accepted(
    site: Site, copy: Path
) -> None:
    changed(copy, "UPDATE job_queue SET completed_at = NULL")
    with pytest.raises(Refused, match="breaks 50 promises") as refused:
        put_back(site, copy)
    assert refused.value.details["breaches"]
    assert put_back(site, copy, accept_breaches=True).rows["job_queue"] == 50


def test_a_copy_of_an_older_version_is_brought_forward(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folder / "old.db"
    with monkeypatch.context() as older:
        older.setattr(migrate, "migrations", lambda engine: migrations(engine)[:1])
        old = SqliteLedger(source)
        old.start()
        old.close()
    done = put_back(site, source)
    assert done.migrated == [m.number for m in migrations("sqlite")][1:]
    ledger = looked_at(site)
    report = selfcheck(ledger, site.state)
    ledger.close()
    assert (report.ok, report.notes) == (True, [])
    assert [name for name in os.listdir(site.state) if "before" in name] == []


def test_a_ledger_that_is_beyond_reading_is_kept_with_its_wal(site: Site, copy: Path) -> None:
    ledger = site.state / "state.db"
    ledger.write_bytes(b"broken" * 5000)
    wal = site.state / "state.db-wal"
    wal.write_bytes(b"frames")
    done = put_back(site, copy)
    assert done.kept is not None
    assert Path(done.kept).read_bytes() == b"broken" * 5000
    assert Path(done.kept + "-wal").read_bytes() == b"frames"
    assert len(jobs_of(site)) == 50


LATE = (
    "import os, signal, sys; from pathlib import Path;"
    "from ductile.store.sqlite import connect; c = connect(Path(sys.argv[1]));"
    "c.execute(\"INSERT INTO plugin_state VALUES ('late', '{}', NULL)\");"
    "os.kill(os.getpid(), signal.SIGKILL)"
)


def commit_and_die(ledger: Path) -> None:
    """As a gateway that is killed: its last commit stands in the WAL alone."""
    subprocess.run([sys.executable, "-c", LATE, str(ledger)], check=False)
    assert ledger.with_name(f"{ledger.name}-wal").stat().st_size > 0


def states_at(path: Path) -> list[object]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = [row[0] for row in connection.execute("SELECT plugin_name FROM plugin_state")]
    connection.close()
    return found


def test_what_the_wal_of_the_old_ledger_holds_is_kept(site: Site, copy: Path) -> None:
    commit_and_die(site.state / "state.db")
    done = put_back(site, copy)
    assert done.kept is not None
    assert not Path(f"{done.kept}-wal").exists()
    assert states_at(Path(done.kept)) == ["late"]
    assert not (site.state / "state.db-wal").exists()


RESTORE = (
    "import os, sys; from pathlib import Path;"
    "from ductile.clock import SystemClock; from ductile.config import load;"
    "from ductile.runtime.restore import restore;"
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
    with site.running() as house:
        house.run("echo")
    commit_and_die(site.state / "state.db")
    killed_at(site, failpoint, copy)
    ledger = looked_at(site)
    assert selfcheck(ledger, site.state).ok
    assert len(jobs_in(ledger)) == jobs
    ledger.close()
    assert states_at(site.state / "state.db") == (["late"] if jobs == 51 else [])
    put_back(site, copy)
    assert len(jobs_of(site)) == 50
    assert [name for name in os.listdir(site.state) if name.startswith(".ductile")] == []


def test_a_power_cut_leaves_a_database_as_it_was(
    site: Site, server: Server, copy: Path, request: pytest.FixtureRequest
) -> None:
    on_postgres(site, server, request.node.name)
    with site.running() as house:
        job_id = house.run("echo")["id"]
    killed_at(site, "restore.loaded", copy)
    until(lambda: jobs_of(site) == {job_id: "succeeded"})
    put_back(site, copy)
    assert len(jobs_of(site)) == 50


def test_a_ledger_moves_from_one_engine_to_the_other_and_back(
    site: Site, server: Server, copy: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    on_file = dict(site.settings["state"])
    before = contents(copy)
    on_postgres(site, server, request.node.name)
    put_back(site, copy)
    back = folder / "back.db"
    ledger = looked_at(site)
    assert len(ledger.read(lambda tx: notices.after(tx, BEGINNING))) == len(before["notices"])
    back_up(ledger, back, state_dir=site.state, clock=CLOCK)
    ledger.close()
    assert contents(back) == before
    site.settings["state"] = on_file
    put_back(site, back)
    assert contents(site.state / "state.db") == before


def test_notices_of_another_servers_transactions_can_be_followed(
    site: Site, server: Server, copy: Path, request: pytest.FixtureRequest
) -> None:
    """Its transactions are numbered far ahead of this server's."""
    changed(copy, "UPDATE notices SET xact = 1 << 40")
    on_postgres(site, server, request.node.name)
    put_back(site, copy)
    ledger = looked_at(site)
    assert len(ledger.read(lambda tx: notices.after(tx, BEGINNING))) == len(
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
