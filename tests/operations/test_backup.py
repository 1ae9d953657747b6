"""Backups are whole, checked and private, or there is no file at all."""

from __future__ import annotations

import errno
import os
import stat
import tarfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ductile.errors import DuctileError, Refused
from ductile.operations import backup
from ductile.operations.backup import UNDER_WAY, Backups, back_up
from ductile.store.engines.api import Ledger
from ductile.store.verify import VerifyReport, Violation
from tests.engine.site import OK, Running, Site
from tests.operations.ledger_copies import (
    CLOCK,
    damage_file,
    make_backup,
    open_read_only,
    read_jobs_of_file,
    restore_copy,
)
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT, until


def at_least(accepted: list[str], count: int) -> bool:
    return len(accepted) >= count


def test_copy_of_a_running_gateway_is_one_private_file_that_is_whole(
    place: Site, folder: Path
) -> None:
    target = folder / "ledger.db"
    with place.running() as site_run:
        job = site_run.run("echo")
        made = make_backup(site_run, target)
    assert read_jobs_of_file(target) == {job["id"]: "succeeded"}
    assert os.listdir(folder) == ["ledger.db"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert (made.path, made.bytes) == (str(target), target.stat().st_size)
    assert made.rows["job_queue"] == 1
    last = backup.last_backup(place.state)
    assert last == {"made_at": made.made_at, "path": str(target)}


def test_a_ledger_that_is_written_hard_is_copied_consistently(place: Site, folder: Path) -> None:
    accepted: list[str] = []
    stop = threading.Event()

    def produce(site_run: Running) -> None:
        while not stop.is_set():
            accepted.append(site_run.put("echo", payload={"text": "x" * 2000}))

    with place.running() as site_run:
        threads = [threading.Thread(target=produce, args=(site_run,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(accepted) > 200)
            for number in range(3):
                before = set(accepted)
                target = folder / f"{number}.db"
                made = make_backup(site_run, target)
                assert before <= read_jobs_of_file(target).keys()
                assert not [note for note in made.notes if "breaks" in note]
                more = len(accepted) + 1
                until(partial(at_least, accepted, more))
        finally:
            stop.set()
            for thread in threads:
                thread.join()


def test_commits_during_a_backup_are_not_in_the_copy(site: Site, folder: Path) -> None:
    site.plugin("echo", OK)
    target = folder / "ledger.db"
    with site.opened() as site_run:
        first = site_run.put("echo")
        late: list[str] = []

        def watch(_done: int, _total: int) -> None:
            late.append(site_run.put("echo"))

        make_backup(site_run, target, watch=watch)
        assert late
    assert read_jobs_of_file(target) == {first: "queued"}


def test_backup_succeeds_where_the_disk_of_the_ledger_is_full(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(backup, "replace_file", refuse)
    with site.running() as running:
        made = make_backup(running, folder / "copy.db")
    assert made.notes[-1].endswith(": No space left on device")
    assert Path(made.path).exists()


def test_nothing_takes_the_place_of_a_file_that_is_there(place: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    target.write_text("mine")
    with place.opened() as site_run:
        with pytest.raises(Refused, match="exists"):
            make_backup(site_run, target)
        assert target.read_text() == "mine"
        make_backup(site_run, target, replace=True)
    assert read_jobs_of_file(target) == {}


def test_a_file_that_appears_meanwhile_stays(site: Site, folder: Path) -> None:
    target = folder / "ledger.db"
    with site.opened() as site_run, pytest.raises(Refused, match="exists"):
        make_backup(site_run, target, on_check=lambda _table, _rows: target.write_text("mine"))
    assert target.read_text() == "mine"
    assert os.listdir(folder) == ["ledger.db"]


@pytest.mark.parametrize("name", ["state.db", "state.db-wal", "state.db-shm", "ductile.lock"])
def test_the_gateways_own_files_are_no_target(site: Site, name: str) -> None:
    site.state.mkdir()
    ledger = site.state / "state.db"
    (site.folder / "link").symlink_to(site.state)
    for path in (site.state / name, site.folder / "link" / name):
        with pytest.raises(Refused, match="a file that the gateway uses"):
            backup.target_for(path, site.state, ledger, CLOCK.now())


def test_a_directory_gets_a_file_that_is_named_after_the_time(site: Site, folder: Path) -> None:
    now = CLOCK.now()
    target = backup.target_for(folder, site.state, None, now)
    assert target == folder / f"ledger-{backup.stamp(now)}.db"
    assert backup.target_for(None, site.state, None, now).parent == site.state / "backups"


def test_missing_directory_is_not_created(site: Site, folder: Path) -> None:
    with site.opened() as site_run, pytest.raises(Refused, match="no directory"):
        make_backup(site_run, folder / "a" / "b.db")
    assert os.listdir(folder) == []


def test_the_usual_directory_is_made_and_private(site: Site) -> None:
    with site.opened() as site_run:
        made = make_backup(site_run, backup.default_target(site.state, CLOCK.now()))
    assert stat.S_IMODE((site.state / "backups").stat().st_mode) == 0o700
    assert Path(made.path).is_file()


def test_a_disk_is_not_filled_with_a_copy(
    site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.opened() as site_run:
        make_backup(site_run, folder / "ledger.db")
        monkeypatch.setattr(backup, "LEFT_FREE", 2**60)
        with pytest.raises(Refused, match="must stay free"):
            make_backup(site_run, folder / "second.db")
    with pytest.raises(Refused, match="must stay free"):
        restore_copy(site, folder / "ledger.db")
    assert os.listdir(folder) == ["ledger.db"]


def test_a_copy_that_ends_before_its_end_leaves_nothing(place: Site, folder: Path) -> None:
    def watch(_done: int, _total: int) -> None:
        raise RuntimeError("enough")

    with place.running() as site_run:
        site_run.run("echo")
        with pytest.raises(RuntimeError):
            make_backup(site_run, folder / "ledger.db", watch=watch)
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
    with site.opened() as site_run:
        make_backup(site_run, folder / "ledger.db")
    assert sorted(os.listdir(folder)) == sorted([alive.name, "ledger.db"])


def test_a_damaged_ledger_is_not_passed_off_as_a_backup(site: Site, folder: Path) -> None:
    site.plugin("echo", OK)
    with site.running() as site_run:
        for _ in range(50):
            site_run.run("echo")
    damage_file(site.state / "state.db")
    ledger = open_read_only(site)
    with pytest.raises(DuctileError, match=r"damaged|malformed"):
        back_up(ledger, folder / "ledger.db", state_dir=site.state, clock=CLOCK)
    ledger.close()
    assert os.listdir(folder) == []


def test_a_copy_with_damaged_pages_is_not_stored(
    place: Site, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = VerifyReport("sqlite", False, violations=[Violation("pages", "the file", "is damaged")])
    monkeypatch.setattr(backup, "verify", lambda _ledger, **_: found)
    with (
        place.running() as site_run,
        pytest.raises(Refused, match="the copy is damaged: pages: the file is damaged"),
    ):
        make_backup(site_run, folder / "ledger.db")
    assert os.listdir(folder) == []


def test_a_ledger_with_violations_is_copied_and_reported(place: Site, folder: Path) -> None:
    with place.running() as site_run:
        site_run.run("echo")
        site_run.run("echo")
        execute(site_run.gateway.ledger, "UPDATE job_queue SET completed_at = NULL")
        made = make_backup(site_run, folder / "ledger.db")
        assert "has 2 violations" in made.notes[-1]
        execute(site_run.gateway.ledger, "UPDATE job_queue SET completed_at = created_at")


def test_a_gateway_makes_one_backup_at_a_time(site: Site, folder: Path) -> None:
    with site.opened() as site_run:
        gate, reached = threading.Event(), threading.Event()
        slow = _Slow(site_run.gateway.ledger, gate, reached)
        backups = Backups(lambda: slow, site.state, CLOCK)  # type: ignore[arg-type, return-value]
        assert backups.state()["state"] == "none"
        backups.start(folder / "a.db", replace=False)
        assert reached.wait(WAIT_LIMIT)
        assert backups.state()["state"] == "copying"
        with pytest.raises(Refused, match="is already running"):
            backups.start(folder / "b.db", replace=False)
        gate.set()
        until(lambda: backups.state()["state"] not in UNDER_WAY)
        state = backups.state()
        assert (state["state"], state["made"]["path"]) == ("done", str(folder / "a.db"))
        backups.stop()


def test_a_stop_ends_the_backup_that_is_being_made(site: Site, folder: Path) -> None:
    with site.opened() as site_run:
        gate, reached = threading.Event(), threading.Event()
        slow = _Slow(site_run.gateway.ledger, gate, reached)
        backups = Backups(lambda: slow, site.state, CLOCK)  # type: ignore[arg-type, return-value]
        backups.start(folder / "a.db", replace=False)
        assert reached.wait(WAIT_LIMIT)
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
    monkeypatch.setattr(backup, "CHECK_PAUSE", 0.2)
    with site.opened() as site_run:
        backups = Backups(lambda: site_run.gateway.ledger, site.state, CLOCK)
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
            assert self._gate.wait(WAIT_LIMIT)
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
    with pytest.raises(Refused, match="changed while"):
        backup.config_archive(loaded, target)
