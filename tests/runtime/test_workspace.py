"""One directory a job: what is copied, and what becomes of a job that cannot have one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ductile.model import SubmittedBy
from ductile.runtime.operate import Starting
from ductile.runtime.workspace import Workspaces
from tests.core.test_judge import JOB
from tests.runtime.site import OK, Running, Site

CHILD = replace(JOB, id="child", parent_job_id="parent")


def full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(params=[False, True], ids=["copy", "hardlink"])
def workspaces(request: pytest.FixtureRequest, tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "w", lambda _: True, hardlink=request.param)


def furnished(workspaces: Workspaces) -> Path:
    parent = workspaces.path("parent")
    (parent / "deep" / "er").mkdir(parents=True)
    (parent / "deep" / "er" / "file").write_text("inside")
    (parent / "link").symlink_to("deep/er/file")
    (parent / "gone").symlink_to("nowhere")
    (parent / "run").write_text("run")
    (parent / "run").chmod(0o755)
    (parent / "deep").chmod(0o555)
    return parent


def test_all_that_is_in_the_parents_is_in_the_childs(workspaces: Workspaces) -> None:
    furnished(workspaces)
    own = Path(str(workspaces.provide(CHILD)))
    assert (own / "deep" / "er" / "file").read_text() == "inside"
    assert (own / "link").readlink() == Path("deep/er/file")
    assert (own / "gone").is_symlink()
    assert (own / "run").stat().st_mode & 0o777 == 0o755
    assert (own / "deep").stat().st_mode & 0o777 == 0o555
    assert own.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("call", ["mkdir", "scandir"])
def test_what_does_not_fit_is_told_as_it_was_and_leaves_nothing(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    furnished(workspaces)
    real: Callable[..., Any] = getattr(os, call)

    def further(path: Any, *more: Any) -> Any:
        return full() if str(path).endswith("deep") else real(path, *more)

    monkeypatch.setattr(os, call, further)
    with pytest.raises(OSError, match="No space left") as raised:
        workspaces.provide(CHILD)
    monkeypatch.undo()
    assert raised.value.errno == errno.ENOSPC
    assert os.listdir(workspaces.path("parent").parent) == ["parent"]


STEPS = {
    "uses": {"uses": "echo"},
    "switch": {"uses": "echo", "if": {"path": "payload.x", "op": "exists"}},
    "relay": {"relay": {"to": "there", "event": "e"}},
}


@pytest.fixture(params=list(STEPS))
def house(request: pytest.FixtureRequest, site: Site) -> Site:
    site.plugin("echo", OK)
    site.settings["service"]["workspaces"] = True
    site.settings["tokens"] = [{"name": "shared", "key": "0123456789abcdef"}]
    door = {"base_url": "http://127.0.0.1:9", "ingress_path": "/in", "secret_ref": "shared"}
    site.settings["instances"] = [{"name": "there", **door}]
    site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": [STEPS[request.param]]}]
    return site


def started(running: Running) -> str:
    gateway = running.gateway
    made = gateway.ledger.write(Starting(gateway, "p", {}, SubmittedBy.API, None))
    gateway.bell.ring_all()
    return str(made.job_ids[0])


def test_a_job_waits_for_a_full_disk_and_loses_no_attempt(
    house: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspaces, "provide", full)
    monkeypatch.setattr("ductile.core.judge.SHORTAGE_SECONDS", 0.01)
    with house.running() as running:
        id = started(running)
        running.notice("job.retrying", id)
        monkeypatch.undo()
        job = running.ended(id)
    assert job["status"] == "succeeded"
    assert job["max_attempts"] - job["attempt"] == 3


def test_a_job_without_a_place_for_its_files_has_failed(
    house: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Workspaces, "provide", denied)
    with house.running() as running:
        job = running.ended(started(running))
    assert job["status"] == "failed"
    assert job["last_error"].startswith("no workspace: ")
