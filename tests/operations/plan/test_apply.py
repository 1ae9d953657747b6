"""A plan is put in force exactly as planned, or not at all; an earlier configuration returns."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.config.versions.copies import DIRECTORY
from ductile.errors import ConfigError, NotFound, Refused
from ductile.operations.config.edit import Sealed
from ductile.operations.config.seal import measure_files
from ductile.operations.plan.apply import (
    ConfigProposal,
    PlanChanged,
    preview,
    propose_directory,
    propose_return,
    put_in_force,
)
from ductile.operations.plan.history import list_history
from ductile.operations.plan.watch import compare_outcomes, find_applied, list_subjects
from tests.conftest import FakeClock
from tests.engine.site import OK, Running, Site
from tests.store.jobs.test_attempts import logged

SECRET = "kept-as-it-is-written-1"
HOUR = timedelta(hours=1)


@pytest.fixture
def opened(site: Site) -> Iterator[Running]:
    site.plugin("echo", OK, config={"api_key": SECRET, "colour": "blue"})
    with site.opened(clock=FakeClock()) as running:
        yield running


def change(site: Site, **config: Any) -> None:
    site.settings["plugins"]["echo"]["config"].update(config)
    site.write()


def plan_id(running: Running, proposal: ConfigProposal) -> str:
    id: str = preview(running.gateway, proposal)["plan"]["id"]
    return id


def apply(running: Running, proposal: ConfigProposal | None = None) -> dict[str, Any]:
    proposal = proposal or ConfigProposal()
    id = plan_id(running, proposal)
    return put_in_force(running.gateway, proposal, id)[1]


def colour(running: Running) -> Any:
    return running.gateway.compiled.settings.plugins["echo"].config["colour"]


def test_planned_change_is_put_in_force(site: Site, opened: Running) -> None:
    change(site, colour="green")
    before = opened.gateway.compiled.snapshot_id
    done = apply(opened)
    assert (colour(opened), done["previous_snapshot_id"]) == ("green", before)
    assert [
        (row["id"] == before, row["in_force"], row["restorable"])
        for row in list_history(opened.gateway, 10)["snapshots"]
    ] == [(False, True, True), (True, False, True)]


def test_anything_else_than_the_plan_is_refused(site: Site, opened: Running) -> None:
    change(site, colour="green")
    id = plan_id(opened, ConfigProposal())

    def is_refused() -> bool:
        with pytest.raises(PlanChanged):
            put_in_force(opened.gateway, ConfigProposal(), id)
        return bool(colour(opened) == "blue")

    change(site, colour="red")
    assert is_refused()
    change(site, colour="green", api_key="another-secret-value-1")
    assert is_refused()
    change(site, api_key=SECRET)
    program = site.plugins / "echo" / "run"
    text = program.read_text()
    program.write_text(f"{text}# changed\n")
    assert is_refused()
    program.write_text(text)
    put_in_force(opened.gateway, ConfigProposal(), id)
    # Of two who have planned the same change, the second one is refused.
    with pytest.raises(PlanChanged):
        put_in_force(opened.gateway, ConfigProposal(), id)


def test_change_that_needs_a_restart_is_refused(site: Site, opened: Running) -> None:
    site.settings["service"]["node"] = "another"
    change(site, colour="green")
    planned = preview(opened.gateway, ConfigProposal())["plan"]
    assert planned["restart"][0]["setting"] == "service.node"
    with pytest.raises(ConfigError):
        put_in_force(opened.gateway, ConfigProposal(), planned["id"])
    assert colour(opened) == "blue"


def test_files_return_byte_by_byte(site: Site, opened: Running) -> None:
    path = site.folder / "config.yaml"
    path.write_text(f"# a comment\n{path.read_text()}")
    apply(opened)
    before = path.read_bytes()
    change(site, colour="green", api_key="another-secret-value-1")
    apply(opened)
    path.chmod(0o640)
    proposal = propose_return(opened.gateway, None, lock=False)
    planned = preview(opened.gateway, proposal)
    assert planned["differs"] == []
    assert SECRET not in json.dumps(planned)
    assert path.read_bytes() != before
    put_in_force(opened.gateway, proposal, planned["plan"]["id"])
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o640)
    assert (colour(opened), sorted(os.listdir(site.folder))) == (
        "blue",
        ["config.yaml", "plugins", "s"],
    )
    # And back again: without an id, to the one before.
    apply(opened, propose_return(opened.gateway, None, lock=False))
    assert colour(opened) == "green"


def test_edit_that_was_not_applied_is_saved(site: Site, opened: Running) -> None:
    change(site, colour="green")
    apply(opened)
    change(site, colour="red")
    done = apply(opened, propose_return(opened.gateway, None, lock=False))
    assert [row["change"] for row in done["files"]] == ["replaced", "created"]
    assert "red" in Path(done["files"][1]["file"]).read_text()


def test_value_that_is_kept_elsewhere_is_reported(site: Site, opened: Running) -> None:
    site.environ["COLOUR"] = "violet-as-it-was"
    site.settings["plugins"]["echo"]["public_config"] = ["colour"]
    change(site, colour="${COLOUR}")
    first = apply(opened)["snapshot_id"]
    change(site, colour="blue")
    apply(opened)
    site.environ["COLOUR"] = "another-violet"
    planned = preview(opened.gateway, propose_return(opened.gateway, first, lock=False))
    assert [row["setting"] for row in planned["differs"]] == ["plugins.echo.config.colour"]


def test_sealed_files_return_only_with_the_seal(site: Site, opened: Running) -> None:
    path, environ = site.folder / "config.yaml", site.environ
    moment = opened.gateway.clock.now()
    measure_files(path, environ).seal.write(moment)
    apply(opened)
    change(site, colour="green")
    measure_files(path, environ).seal.write(moment)
    apply(opened)
    with pytest.raises(Sealed):
        propose_return(opened.gateway, None, lock=False)
    apply(opened, propose_return(opened.gateway, None, lock=True))
    assert (colour(opened), opened.gateway.compiled.loaded.warnings) == ("blue", ())
    change(site, colour="red")
    with pytest.raises(Refused, match="after it was sealed"):
        propose_return(opened.gateway, None, lock=True)


def test_snapshot_without_files_cannot_return(site: Site, opened: Running) -> None:
    first = opened.gateway.compiled.snapshot_id
    with pytest.raises(Refused, match="no earlier configuration"):
        propose_return(opened.gateway, None, lock=False)
    with pytest.raises(NotFound):
        propose_return(opened.gateway, "unknown", lock=False)
    change(site, colour="green")
    apply(opened)
    shutil.rmtree(site.state / DIRECTORY)
    with pytest.raises(Refused, match="not kept on this node"):
        propose_return(opened.gateway, first, lock=False)


def test_files_of_another_directory_replace_those_of_the_gateway(
    site: Site, opened: Running, tmp_path: Path
) -> None:
    change(site, colour="green")
    shutil.copy(site.folder / "config.yaml", tmp_path)
    change(site, colour="blue")
    proposal = propose_directory(opened.gateway, tmp_path, lock=False)
    done = apply(opened, proposal)
    assert ([row["change"] for row in done["files"]], colour(opened)) == (["replaced"], "green")


def test_unwritable_file_refuses_the_return(
    site: Site, opened: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(site, colour="green")
    apply(opened)
    proposal = propose_return(opened.gateway, None, lock=False)
    id = plan_id(opened, proposal)

    def deny(*_: object) -> None:
        raise PermissionError(13, os.strerror(13), "config.yaml")

    monkeypatch.setattr(os, "fchmod", deny)
    with pytest.raises(Refused, match=r"cannot write config\.yaml: Permission denied"):
        put_in_force(opened.gateway, proposal, id)
    assert colour(opened) == "green"
    assert "green" in (site.folder / "config.yaml").read_text()


def test_error_rates_are_compared_with_the_same_time_before(site: Site, opened: Running) -> None:
    gateway, clock = opened.gateway, opened.gateway.clock
    assert isinstance(clock, FakeClock)
    change(site, colour="green")
    applied, _ = put_in_force(gateway, ConfigProposal(), plan_id(opened, ConfigProposal()))
    at = applied.at

    def log(minutes: int, status: str, started: int | None = None) -> None:
        moment = to_text(at + timedelta(minutes=minutes))
        start = to_text(at + timedelta(minutes=minutes if started is None else started))
        row = {"id": f"{moment}-{status}-1", "completed_at": moment, "started_at": start}
        logged(gateway.ledger, {**row, "plugin": "echo", "status": status})

    for minutes in (-70, -50, -40, -30):
        log(minutes, "failed" if minutes == -70 else "succeeded")
    # It started under the configuration before.
    log(5, "failed", started=-5)
    clock.advance(600)
    seen = compare_outcomes(gateway, find_applied(site.state, applied.id), HOUR)
    [row] = seen["subjects"]
    assert (row["kind"], row["name"], row["before"]["attempts"]) == ("plugin", "echo", 3)
    assert (row["before"]["failed"], row["after"]["attempts"], seen["risen"]) == (0, 0, False)
    assert (seen["seconds_left"], seen["in_force"]) == (3000.0, True)
    log(6, "failed")
    log(7, "timed_out")
    log(8, "skipped")
    logged(gateway.ledger, {"id": "never-started-1", "completed_at": to_text(at), "status": "dead"})
    seen = compare_outcomes(gateway, applied, HOUR)
    [row] = seen["subjects"]
    assert (row["after"], seen["risen"]) == ({"attempts": 2, "failed": 2, "rate": 1.0}, True)
    change(site, colour="red")
    gateway.reload()
    assert compare_outcomes(gateway, applied, HOUR)["in_force"] is False
    with pytest.raises(NotFound):
        find_applied(site.state, "another")


def test_subjects_of_a_plan_are_what_it_changes(site: Site, opened: Running) -> None:
    site.plugin("store", OK)
    site.settings["routes"] = [{"from": "echo", "event_type": "new", "to": "store"}]
    step = {"id": "first", "uses": "echo"}
    site.settings["pipelines"] = [
        {"name": "main", "on": "go", "steps": [step], "schedules": [{"id": "x", "every": "1h"}]}
    ]
    site.settings["plugins"]["echo"]["schedules"] = [{"id": "hourly", "every": "1h"}]
    site.write()
    plan = preview(opened.gateway, ConfigProposal())["plan"]
    assert plan["watched"] == list_subjects(plan, plan["changes"])
    assert plan["watched"] == {
        "plugins": ["echo", "store"],
        "pipelines": ["main"],
        "schedules": ["echo/hourly"],
        "everything": False,
    }


def test_plan_connects_to_nothing(site: Site, opened: Running) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        site.settings["gateway"] = {"allowed_networks": ["127.0.0.0/8"]}
        site.settings["dead_man"] = {"url": f"{url}/ping", "every": "1m"}
        site.settings["instances"] = [
            {"name": "lab", "base_url": url, "ingress_path": "/peer", "secret": "0123456789ab"}
        ]
        change(site, colour="green")
        assert preview(opened.gateway, ConfigProposal())["plan"]["changed"] is True
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()
    assert not (site.state / "workspaces").exists()
