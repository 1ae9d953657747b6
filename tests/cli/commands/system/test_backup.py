"""`system backup`, `restore` and `selfcheck`, beside a running gateway and without one."""

from __future__ import annotations

import os
import signal
import stat
import tarfile
from pathlib import Path

import apsw
import pytest

from tests.cli.running import House, end, read_until
from tests.waiting import until

COUNT = "SELECT count(*) FROM job_queue"


@pytest.fixture
def ran(house: House) -> House:
    """A house whose ledger has one job."""
    assert house("run", "hello").code == 0
    return house


def count(path: Path) -> object:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(COUNT).get
    connection.close()
    return found


def test_a_backup_without_a_gateway(ran: House) -> None:
    told = ran("system", "backup")
    assert told.code == 0
    [copy] = (ran.state / "backups").iterdir()
    assert told.out.startswith(f"backed up to {copy}: 1 job, ")
    assert count(copy) == 1
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (ran.state / "ductile.lock").read_text() == ""


def test_a_backup_through_the_gateway(ran: House) -> None:
    target = ran.root / "copy.db"
    with ran.gateway():
        made = ran("system", "backup", str(target), "--json")
        again = ran("system", "backup", str(target), "--json")
        replaced = ran("system", "backup", str(target), "--replace")
    assert made.json["path"] == str(target)
    assert made.json["rows"]["job_queue"] == 1
    assert (again.code, again.json["code"]) == (1, "refused")
    assert replaced.code == 0
    assert count(target) == 1


def test_a_relative_path_is_the_callers(ran: House, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = ran.root / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with ran.gateway():
        assert ran("system", "backup", "a.db").code == 0
    assert ran("system", "backup", "b.db").code == 0
    assert sorted(os.listdir(elsewhere)) == ["a.db", "b.db"]


def test_a_backup_that_fails_in_the_gateway_is_told(ran: House) -> None:
    with ran.gateway():
        told = ran("system", "backup", str(ran.root / "no" / "where.db"))
    assert told.code == 1
    assert "there is no directory" in told.err


@pytest.mark.parametrize("running", [True, False])
def test_a_dry_run_makes_nothing(ran: House, running: bool) -> None:
    def rehearse() -> None:
        told = ran("system", "backup", "--dry-run", "--with-config")
        assert told.code == 0
        assert told.out.startswith(f"would copy the ledger to {ran.state}/backups/ledger-")
        assert "would archive the configuration" in told.out
        taken = ran("system", "backup", str(ran.root / "config.yaml"), "--dry-run")
        assert (taken.code, "exists" in taken.err) == (1, True)

    if running:
        with ran.gateway():
            rehearse()
    else:
        rehearse()
    assert not (ran.state / "backups").exists()


def test_the_configuration_with_it_on_demand(ran: House) -> None:
    target = ran.root / "copy.db"
    told = ran("system", "backup", str(target), "--with-config", "--json")
    archive = Path(told.json["config"])
    assert archive == ran.root / "copy.db.config.tar"
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    with tarfile.open(archive) as found:
        assert str(ran.root / "config.yaml").lstrip("/") in found.getnames()


def test_before_the_first_start_there_is_nothing_to_copy(house: House) -> None:
    told = house("system", "backup", "--json")
    assert (told.code, told.json["code"]) == (1, "not_found")


def test_a_remote_gateway_is_not_told_where_to_write(house: House) -> None:
    for more in (["/tmp/x.db"], ["--with-config"]):
        told = house("system", "backup", *more, "--api-url", "http://127.0.0.1:1")
        assert told.code == 2


def test_a_restore_and_what_it_keeps(ran: House) -> None:
    target = ran.root / "copy.db"
    ran("system", "backup", str(target))
    ran("run", "hello")
    rehearsed = ran("system", "restore", str(target), "--dry-run")
    assert rehearsed.out == f"would restore {target}: 1 job, verified\n"
    assert count(ran.state / "state.db") == 2
    told = ran("system", "restore", str(target))
    assert told.code == 0
    assert told.out.splitlines()[0] == f"restored {target}: 1 job, verified"
    [kept] = ran.state.glob("state.db.replaced-*")
    assert told.out.splitlines()[1] == f"the previous ledger is kept in {kept}"
    assert (count(ran.state / "state.db"), count(kept)) == (1, 2)
    assert ran("system", "verify").code == 0


def test_no_restore_under_a_running_gateway(ran: House) -> None:
    target = ran.root / "copy.db"
    with ran.gateway() as process:
        ran("system", "backup", str(target))
        told = ran("system", "restore", str(target))
        assert told.code == 1
        assert f"(pid {process.pid})" in told.err
        assert "stop it before restoring" in told.err
        assert ran("system", "restore", str(target), "--json").json["code"] == "locked"


def test_what_is_no_backup_is_refused(ran: House) -> None:
    told = ran("system", "restore", str(ran.root / "config.yaml"), "--json")
    assert (told.code, told.json["code"]) == (1, "refused")
    assert count(ran.state / "state.db") == 1


def test_a_job_that_ran_in_the_copy_is_recovered(house: House) -> None:
    house.plugin("slow", "sleep 60")
    target = house.root / "copy.db"
    gateway = house.start("system", "start")
    try:
        read_until(gateway, '"message":"ready"')
        job = house("api", "/plugin/slow/poll", "-X", "POST").json["job_id"]
        until(lambda: house("job", "inspect", job, "--json").json["status"] == "running")
        assert house("system", "backup", str(target)).code == 0
    finally:
        end(gateway, signal.SIGKILL)
    until(lambda: house("system", "restore", str(target)).code == 0)
    checked = house("system", "verify")
    assert checked.code == 0
    assert "running jobs: 1; the next start recovers them" in checked.out
    with house.gateway():
        # Recovered as a lost attempt, and waits its backoff or runs again.
        assert house("job", "inspect", job, "--json").json["attempt"] == 2


def test_a_selfcheck_of_a_running_gateway_and_without_one(ran: House) -> None:
    told = ran("system", "verify", "--quick")
    assert (told.code, told.out) == (0, "ok: 2 rows checked on sqlite\n")
    with ran.gateway():
        page = ran("system", "verify", "--json")
    assert (page.code, page.json["ok"], page.json["rows"]["job_queue"]) == (0, True, 1)


def test_a_selfcheck_that_finds_something_is_exit_1(ran: House) -> None:
    ran("run", "hello")
    connection = apsw.Connection(str(ran.state / "state.db"))
    connection.execute("UPDATE job_queue SET completed_at = NULL")
    connection.close()
    told = ran("system", "verify")
    assert told.code == 1
    assert "has no completed_at" in told.out
    assert told.out.endswith("2 violations: 4 rows checked on sqlite\n")
    assert ran("system", "verify", "--json").json["ok"] is False
    copy = ran.root / "copy.db"
    made = ran("system", "backup", str(copy))
    assert (made.code, "has 2 violations" in made.out) == (0, True)
    refused = ran("system", "restore", str(copy))
    assert (refused.code, "2 violations" in refused.err) == (1, True)
    for option in ("--accept-breaches", "--allow-violations"):
        assert ran("system", "restore", str(copy), option).code == 0
