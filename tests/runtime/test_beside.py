"""A ledger that is not used any more, beside the new one that is."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import apsw
import pytest

from ductile.runtime import predecessor
from ductile.runtime.doctor import Finding
from ductile.store.sqlite import SqliteLedger
from tests.postgres import Server
from tests.runtime.copies import copied, on_postgres, put_back
from tests.runtime.site import PYTHON, Site
from tests.runtime.ward import WARNING, examined
from tests.store.conftest import execute

REMEMBERS = PYTHON + "print(json.dumps({'status': 'ok', 'result': 1, 'state_updates': {'n': 1}}))"
THEIRS = (Path(__file__).parents[1] / "compat/ledger.sql").read_text()


@pytest.fixture
def place(site: Site) -> Site:
    site.plugin("echo", REMEMBERS)
    site.folder.chmod(0o700)
    site.settings["service"]["log_level"] = "warn"
    return site


@pytest.fixture
def worked(place: Site) -> Site:
    """It has a full ledger in a file."""
    with place.running() as house:
        house.run("echo")
    return place


def start(site: Site, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What a start warns of a ledger, by its log; it runs one job."""
    capsys.readouterr()
    with site.running() as house:
        house.run("echo")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if line["component"] == "gateway" and "ledger" in str(line)]


def found(site: Site, **more: Any) -> list[Finding]:
    return [finding for finding in examined(site, **more) if finding.topic == "ledger"]


def renamed(site: Site, name: str = "other.db") -> None:
    site.settings["state"] = {"path": str(site.state / name)}


def test_a_start_on_a_new_database_names_the_file_that_was_used_before(
    worked: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = worked.state / "state.db"
    on_postgres(worked, postgres)
    [line] = start(worked, capsys)
    assert line["level"] == "warn"
    assert line["message"] == (
        f"{path} is a ledger that is not used (jobs: 1, plugins with a state: 1)"
    )
    assert line["run"] == f"ductile system restore {path} --config {worked.folder / 'config.yaml'}"


def test_the_doctor_names_it_before_the_first_start(worked: Site, postgres: Server) -> None:
    on_postgres(worked, postgres)
    [finding] = found(worked)
    assert "is a ledger that is not used" in finding.what


def test_the_doctor_names_it_although_the_new_one_has_been_at_work(
    worked: Site, postgres: Server
) -> None:
    on_postgres(worked, postgres)
    with worked.running() as house:
        house.run("echo")
    [finding] = found(worked)
    assert finding.severity is WARNING
    assert finding.what.startswith(str(worked.state / "state.db"))
    assert finding.run is not None
    assert finding.run.startswith(f"ductile system restore {worked.state / 'state.db'} --config")


def test_what_it_says_moves_all_and_then_nothing_is_left_to_say(
    worked: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_postgres(worked, postgres)
    assert start(worked, capsys)
    put_back(worked, worked.state / "state.db")
    assert start(worked, capsys) == []
    assert found(worked) == []


def test_a_start_on_a_new_file_after_a_database_tells_how_to_get_a_copy_of_that(
    place: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_file = dict(place.settings["state"])
    url = on_postgres(place, postgres)
    assert start(place, capsys) == []
    place.settings["state"] = on_file
    [line] = start(place, capsys)
    [finding] = found(place)
    assert "kept its ledger in another database" in line["message"]
    assert "ductile system backup" in line["why"]
    assert (finding.what, finding.why) == (line["message"], line["why"])
    assert url not in str(line)

    place.settings["state"] = {"url": url, "dir": str(place.state)}
    copy = place.folder / "copy.db"
    with place.opened() as house:
        copied(house, copy)
    place.settings["state"] = on_file
    put_back(place, copy)
    assert (start(place, capsys), found(place)) == ([], [])


def test_a_file_that_was_left_for_a_database_long_ago_is_not_named(
    worked: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_postgres(worked, postgres)
    put_back(worked, worked.state / "state.db")
    assert start(worked, capsys) == []
    renamed(worked)
    [line] = start(worked, capsys)
    assert "in another database" in line["message"]
    renamed(worked, "third.db")
    [line] = start(worked, capsys)
    assert line["message"].startswith(str(worked.state / "other.db"))


def test_a_start_on_another_database_tells_so_too(
    place: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    on_postgres(place, postgres)
    assert start(place, capsys) == []
    on_postgres(place, postgres)
    [line] = start(place, capsys)
    assert "in another database" in line["message"]


def test_a_file_under_another_name(worked: Site, capsys: pytest.CaptureFixture[str]) -> None:
    path = worked.state / "state.db"
    renamed(worked)
    assert [finding.what for finding in found(worked)] == [
        f"{path} is a ledger that is not used (jobs: 1, plugins with a state: 1)"
    ]
    [line] = start(worked, capsys)
    assert f"system restore {path}" in line["run"]


def test_a_path_that_a_shell_would_take_apart_is_quoted(
    worked: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    path = worked.state / "my ledger.db"
    (worked.state / "state.db").rename(path)
    [line] = start(worked, capsys)
    assert f"system restore {quote(str(path))} " in line["run"]


def test_of_several_the_one_that_was_used_last_is_named(worked: Site) -> None:
    for name in ("other.db", "third.db"):
        renamed(worked, name)
        with worked.running() as house:
            house.run("echo")
    renamed(worked, "fourth.db")
    [finding] = found(worked)
    assert finding.what.startswith(str(worked.state / "third.db"))


def test_the_ledger_of_the_go_program_is_to_be_imported(
    place: Site,
    postgres: Server,
    capsys: pytest.CaptureFixture[str],
) -> None:
    place.state.mkdir(mode=0o700)
    path = place.state / "state.db"
    with closing(apsw.Connection(str(path))) as db:
        db.execute(THEIRS)
    on_postgres(place, postgres)
    with place.opened():
        pass
    [finding] = found(place)
    assert finding.run is not None
    assert finding.run.startswith(f"ductile system import {path} ")
    [line] = start(place, capsys)
    assert f"ductile system import {path} " in line["run"]
    assert found(place) == [], "plugins may remember all that there was"


@pytest.mark.parametrize(
    "name", ["state.db.replaced-20260208T100000.000Z", ".ductile-restore-x.db", "state.db-wal"]
)
def test_what_a_restore_or_an_engine_puts_there_is_not_meant(worked: Site, name: str) -> None:
    (worked.state / "state.db").rename(worked.state / name)
    renamed(worked)
    assert found(worked) == []


def test_a_copy_of_the_ledger_in_use_is_no_other_one(worked: Site) -> None:
    with worked.opened() as house:
        copied(house, worked.state / "copy.db")
    assert found(worked) == []


def test_a_ledger_in_which_nothing_was_ever_done_is_not_missed(place: Site) -> None:
    with place.opened():
        pass
    renamed(place)
    assert found(place) == []


def test_a_ledger_that_is_not_new_misses_nothing(worked: Site) -> None:
    renamed(worked)
    with worked.running() as house:
        house.run("echo")
    now = datetime.now(UTC)
    assert len(found(worked, now=now + timedelta(days=6))) == 1
    later = found(worked, now=now + timedelta(days=8))
    assert [finding for finding in later if "not used" in finding.what] == []


def test_a_ledger_whose_first_jobs_were_pruned_is_not_new(worked: Site) -> None:
    renamed(worked)
    with worked.running() as house:
        house.run("echo")
        house.run("echo")
        execute(house.gateway.ledger, "DELETE FROM job_queue WHERE seq = 1")
    assert [finding for finding in found(worked) if "not used" in finding.what] == []


def test_an_empty_ledger_stays_new(worked: Site) -> None:
    renamed(worked)
    with worked.opened():
        pass
    assert len(found(worked, now=datetime.now(UTC) + timedelta(days=100))) == 1


def test_what_else_lies_there_is_nothing(place: Site, capsys: pytest.CaptureFixture[str]) -> None:
    place.state.mkdir(mode=0o700)
    (place.state / "notes.txt").write_text("nothing of ours" * 100)
    (place.state / "empty.db").touch()
    (place.state / "folder.db").mkdir()
    (place.state / "nowhere.db").symlink_to(place.state / "missing")
    (place.state / "own.db").symlink_to(place.state / "state.db")
    with closing(apsw.Connection(str(place.state / "a-plugins.db"))) as db:
        db.execute("CREATE TABLE job_queue (id TEXT)")
    assert start(place, capsys) == []
    assert found(place) == []


def test_a_broken_ledger_stops_no_start(worked: Site, capsys: pytest.CaptureFixture[str]) -> None:
    path = worked.state / "state.db"
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)
    renamed(worked)
    assert start(worked, capsys) == []


def test_a_look_leaves_nothing_beside_what_it_looks_into(worked: Site) -> None:
    renamed(worked)
    before = sorted(worked.state.iterdir())
    assert found(worked)
    assert sorted(worked.state.iterdir()) == before


def test_a_look_leaves_nothing_beside_the_ledger_of_another_program(place: Site) -> None:
    place.state.mkdir(exist_ok=True)
    path = place.state / "50% of a #1?.db"
    with closing(apsw.Connection(str(path))) as connection:
        connection.pragma("journal_mode", "wal")
        connection.execute(THEIRS)
    before = sorted(place.state.iterdir())
    [finding] = found(place)
    assert "is the ledger of another program" in finding.what
    assert sorted(place.state.iterdir()) == before


def test_what_the_wal_of_a_gateway_that_died_holds_counts(place: Site) -> None:
    with place.opened() as house:
        house.put("echo")
        path = place.state / "killed.db"
        ledger = house.gateway.ledger
        assert isinstance(ledger, SqliteLedger)
        for end in ("", "-wal"):
            source = ledger.path.with_name(f"state.db{end}")
            path.with_name(f"killed.db{end}").write_bytes(source.read_bytes())
        house.abandon()
    renamed(place)
    (place.state / "state.db").unlink()
    [finding] = found(place)
    assert "killed.db is a ledger that is not used (jobs: 1" in finding.what


def test_nobody_is_asked_about_a_state_directory_that_is_not_there(place: Site) -> None:
    assert found(place) == []


def test_a_boot_that_this_ledger_knows_is_its_own(worked: Site) -> None:
    with worked.opened() as house:
        predecessor.remember(worked.state, house.gateway.boot)
    assert found(worked) == []
