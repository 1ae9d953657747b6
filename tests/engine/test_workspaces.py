"""One directory per job: what is copied, and jobs whose directory cannot be created."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ductile.engine.workspaces import MARKER, Workspaces, read_marker
from ductile.model import SubmittedBy
from ductile.operations import job_tree
from ductile.operations.jobs import JobRetry
from ductile.operations.pipelines import PipelineStart
from ductile.operations.why import explain_job
from tests.core.jobs.test_judge import JOB
from tests.engine.observability.test_log import Output
from tests.engine.observability.test_log import out as out
from tests.engine.site import OK, PYTHON, Running, Site

CHILD = replace(JOB, id="child", parent_job_id="parent")


FULL = f"no workspace: {os.strerror(errno.ENOSPC)}"


def full(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture(params=[False, True], ids=["copy", "hardlink"])
def workspaces(request: pytest.FixtureRequest, tmp_path: Path) -> Workspaces:
    return Workspaces(tmp_path / "w", lambda _: True, hardlink=request.param)


def fill_parent(workspaces: Workspaces) -> Path:
    parent = workspaces.path("parent")
    (parent / "deep" / "er").mkdir(parents=True)
    (parent / "deep" / "er" / "file").write_text("inside")
    (parent / "link").symlink_to("deep/er/file")
    (parent / "gone").symlink_to("nowhere")
    (parent / "run").write_text("run")
    (parent / "run").chmod(0o755)
    (parent / "deep").chmod(0o555)
    return parent


def test_workspace_is_a_copy_of_the_parent_workspace(workspaces: Workspaces) -> None:
    fill_parent(workspaces)
    own = Path(str(workspaces.provide(CHILD)))
    assert (own / "deep" / "er" / "file").read_text() == "inside"
    assert (own / "link").readlink() == Path("deep/er/file")
    assert (own / "gone").is_symlink()
    assert (own / "run").stat().st_mode & 0o777 == 0o755
    assert (own / "deep").stat().st_mode & 0o777 == 0o555
    assert own.stat().st_mode & 0o777 == 0o700


MAKE_FILE = f"""{PYTHON}
with open(json.load(sys.stdin)["workspace_dir"] + "/file", "w") as file:
    file.write("made")
print(json.dumps({{"status": "ok", "result": "done"}}))
"""


def provide(workspaces: Workspaces, job_id: str) -> Path:
    return Path(str(workspaces.provide(replace(CHILD, id=job_id))))


def test_copied_branches_share_no_file(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w", lambda _: True)
    parent = fill_parent(workspaces)
    one, two = provide(workspaces, "one"), provide(workspaces, "two")
    folders = (parent, one, two)
    for name in ("run", "deep/er/file"):
        found = [(folder / name).stat() for folder in folders]
        assert len({about.st_ino for about in found}) == 3
        assert {about.st_nlink for about in found} == {1}
    with (one / "run").open("a") as file:
        file.write(" one")
    assert [(folder / "run").read_text() for folder in folders] == ["run", "run one", "run"]


def test_hard_linked_branches_share_their_files_but_not_their_directories(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w", lambda _: True, hardlink=True)
    parent = fill_parent(workspaces)
    one, two = provide(workspaces, "one"), provide(workspaces, "two")
    folders = (parent, one, two)
    for name in ("run", "deep/er/file"):
        assert len({(folder / name).stat().st_ino for folder in folders}) == 1
    (one / "run").unlink()
    (one / "run").write_text("replaced")
    assert [(folder / "run").read_text() for folder in folders] == ["run", "replaced", "run"]


@pytest.mark.parametrize(("setting", "links"), [({}, 1), ({"workspace_clone": "hardlink"}, 2)])
def test_files_are_hard_linked_between_steps_only_if_configured(
    site: Site, setting: dict[str, str], links: int
) -> None:
    site.plugin("make", MAKE_FILE)
    site.plugin("keep", OK)
    site.settings["service"].update(workspaces=True, **setting)
    steps = [{"id": "one", "uses": "make"}, {"id": "two", "uses": "keep"}]
    site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": steps}]
    with site.running() as running:
        first = started(running)
        running.ended(first)
        [second] = [row["job_id"] for row in graph(running, first) if row["step"] == "two"]
        assert running.ended(second)["status"] == "succeeded"
        file = running.gateway.compiled.workspaces.path(second) / "file"
        assert (file.read_text(), file.stat().st_nlink) == ("made", links)


@pytest.mark.parametrize("call", ["mkdir", "scandir"])
def test_failed_copy_raises_the_first_error_and_leaves_nothing(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    fill_parent(workspaces)
    real: Callable[..., Any] = getattr(os, call)

    def call_and_continue(path: Any, *more: Any) -> Any:
        return full() if str(path).endswith("deep") else real(path, *more)

    monkeypatch.setattr(os, call, call_and_continue)
    with pytest.raises(OSError, match="No space left") as raised:
        workspaces.provide(CHILD)
    monkeypatch.undo()
    assert raised.value.errno == errno.ENOSPC
    assert os.listdir(workspaces.path("parent").parent) == ["parent"]


def test_copy_that_would_fill_the_disk_is_not_started(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = fill_parent(workspaces)
    with (parent / "large").open("wb") as file:
        file.truncate(3 << 20)
    room = shutil.disk_usage(parent)._replace(free=2 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room)
    copied = counted(monkeypatch, shutil, "copyfileobj")
    if workspaces._hardlink:
        assert workspaces.provide(CHILD) is not None
        return
    with pytest.raises(OSError, match="need 3 MiB, but 2 MiB are free on the disk") as raised:
        workspaces.provide(CHILD)
    assert (raised.value.errno, copied) == (errno.ENOSPC, [])
    assert os.listdir(parent.parent) == ["parent"]
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: room._replace(free=4 << 20))
    own = Path(str(workspaces.provide(CHILD)))
    assert (own / "large").stat().st_size == 3 << 20


def test_reflink_needs_no_free_space(
    workspaces: Workspaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_parent(workspaces)
    asked = counted(monkeypatch, shutil, "disk_usage")
    monkeypatch.setattr(fcntl, "ioctl", lambda *_: 0)
    assert workspaces.provide(CHILD) is not None
    assert asked == []


def counted(monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> list[Any]:
    """Record the calls of this function, which still runs."""
    real, calls = getattr(module, name), list[Any]()

    def call(*arguments: Any) -> Any:
        calls.append(arguments)
        return real(*arguments)

    monkeypatch.setattr(module, name, call)
    return calls


STEPS = {
    "uses": {"uses": "echo"},
    "switch": {"uses": "echo", "if": {"path": "payload.x", "op": "exists"}},
    "relay": {"relay": {"to": "there", "event": "e"}},
}


@pytest.fixture(params=list(STEPS))
def site_with_workspaces(request: pytest.FixtureRequest, site: Site) -> Site:
    site.plugin("echo", OK)
    site.settings["service"]["workspaces"] = True
    site.settings["tokens"] = [{"name": "shared", "key": "0123456789abcdef"}]
    door = {"base_url": "http://127.0.0.1:9", "ingress_path": "/in", "secret_ref": "shared"}
    site.settings["instances"] = [{"name": "there", **door}]
    site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": [STEPS[request.param]]}]
    return site


def started(running: Running) -> str:
    gateway = running.gateway
    made = gateway.ledger.write(PipelineStart(gateway, "p", {}, SubmittedBy.API, None))
    gateway.work_signal.notify_all()
    return str(made.job_ids[0])


def test_job_waits_for_disk_space_without_using_an_attempt(
    site_with_workspaces: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Workspaces, "provide", full)
    monkeypatch.setattr("ductile.core.jobs.judge.SHORTAGE_SECONDS", 0.01)
    with site_with_workspaces.running() as running:
        id = started(running)
        running.notice("job.retrying", id)
        gateway = running.gateway
        now = gateway.clock.now()
        reasons = explain_job(gateway.ledger, id, gateway.compiled, {}, now=now)["why"]
        assert any(FULL in line for line in reasons)
        monkeypatch.undo()
        job = running.ended(id)
    assert job["status"] == "succeeded"
    assert job["max_attempts"] - job["attempt"] == 3


def test_job_whose_workspace_cannot_be_created_fails(
    site_with_workspaces: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deny(*_: object) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Workspaces, "provide", deny)
    with site_with_workspaces.running() as running:
        job = running.ended(started(running))
    assert job["status"] == "failed"
    assert job["last_error"].startswith("no workspace: ")


def test_trees_deeper_than_the_stack_are_copied_and_removed(tmp_path: Path) -> None:
    root = tmp_path / "w"
    workspaces = Workspaces(root, lambda _: True)
    deep = workspaces.path("parent").joinpath(*["d"] * (sys.getrecursionlimit() + 100))
    try:
        os.makedirs(root)
        subprocess.run(["mkdir", "-p", deep], check=True)
        (root / "parent" / "file").write_text("of a job")
        (root / "parent" / "link").symlink_to(tmp_path)
        assert workspaces.provide(CHILD) == str(root / "child")
        assert (root / "child").joinpath(*deep.parts[-900:]).is_dir()
        later = datetime.now(UTC) + timedelta(seconds=1)
        assert workspaces.sweep(later, 0.0, lambda _: False) == 2
        assert os.listdir(root) == []
    finally:
        # The other programs that remove temporary files may recurse.
        subprocess.run(["rm", "-rf", root], check=True)


def test_only_old_directories_that_are_not_in_use_are_removed(tmp_path: Path) -> None:
    workspaces = Workspaces(tmp_path / "w", lambda _: True)
    now = datetime(2026, 2, 8, 10, 0, tzinfo=UTC)
    ages = {"old": 3601, "used": 3601, "young": 3599, ".partial": 3601, ".used": 3601}
    for name, seconds in ages.items():
        folder = tmp_path / "w" / name
        folder.mkdir(parents=True)
        (folder / "file").touch()
        at = now.timestamp() - seconds
        os.utime(folder, (at, at))
    assert workspaces.sweep(now, 3600.0, lambda job_id: job_id == "used") == 2
    assert sorted(os.listdir(tmp_path / "w")) == [".used", "used", "young"]


def test_marker_of_a_shared_directory_is_kept(tmp_path: Path) -> None:
    root = tmp_path / "w"
    assert read_marker(root, "first") == "first"
    assert read_marker(root, "second") == "first"
    assert os.listdir(root) == [MARKER]
    now = datetime(2100, 1, 1, tzinfo=UTC)
    Workspaces(root, lambda _: True).sweep(now, 1.0, lambda _: False)
    assert read_marker(root, "third") == "first"


class TestFilesThatAreGone:
    """A step starts with the files of the previous one, until their retention has passed."""

    STEP = replace(CHILD, pipeline="p", step_path="two")

    @pytest.mark.parametrize(
        ("job", "wanted"),
        [
            pytest.param(replace(STEP, step_path="one"), True, id="a first step"),
            pytest.param(replace(STEP, parent_job_id=None), True, id="no parent"),
            pytest.param(STEP, False, id="no workspace"),
        ],
    )
    def test_no_warning_for_a_job_without_previous_files(
        self, tmp_path: Path, job: Any, wanted: bool
    ) -> None:
        workspaces = Workspaces(tmp_path, lambda _: wanted, first={("p", "one")})
        assert workspaces.describe_missing_files(job) is None

    def test_warning_only_while_previous_files_are_missing(self, tmp_path: Path) -> None:
        workspaces = Workspaces(tmp_path, lambda _: True, first={("p", "one")})
        assert "the files of the previous job parent are gone" in str(
            workspaces.describe_missing_files(self.STEP)
        )
        fill_parent(workspaces)
        assert workspaces.describe_missing_files(self.STEP) is None
        assert workspaces.find_source(self.STEP) == workspaces.path("parent")

    def test_late_retry_of_a_dependent_step_fails(self, site: Site) -> None:
        site.plugin("echo", OK)
        site.plugin("once", "exit 1\n", retry={"max_attempts": 1})
        both = [{"id": "one", "uses": "echo"}, {"id": "two", "uses": "once"}]
        pipeline = {"name": "p", "on": "go", "workspace": True, "steps": both}
        site.settings["pipelines"] = [pipeline]
        with site.running() as running:
            gateway, first = running.gateway, started(running)
            running.ended(first)
            [second] = [row["job_id"] for row in graph(running, first) if row["step"] == "two"]
            assert running.ended(second)["status"] == "dead"
            shutil.rmtree(gateway.compiled.workspaces.path(first))
            gateway.ledger.write(JobRetry(gateway, second))
            gateway.work_signal.notify_all()
            running.notice("job.failed", second)
            assert f"the files of the previous job {first} are not in" in str(
                running.job(second)["last_error"]
            )

    def test_late_retry_logs_missing_files(self, site: Site, out: Output) -> None:
        site.plugin("echo", OK)
        site.plugin(
            "once", f"test -e {site.folder}/fixed || exit 1\n{OK}", retry={"max_attempts": 1}
        )
        site.settings["service"].update(workspaces=True, log_level="warn")
        both = [{"id": "one", "uses": "echo"}, {"id": "two", "uses": "once"}]
        site.settings["pipelines"] = [{"name": "p", "on": "go", "steps": both}]
        with site.running() as running:
            gateway, first = running.gateway, started(running)
            running.ended(first)
            [second] = [row["job_id"] for row in graph(running, first) if row["step"] == "two"]
            assert running.ended(second)["status"] == "dead"
            shutil.rmtree(gateway.compiled.workspaces.path(first))
            (site.folder / "fixed").touch()
            out.bytes()
            gateway.ledger.write(JobRetry(gateway, second))
            gateway.work_signal.notify_all()
            running.notice("job.succeeded", second)
        [line] = [json.loads(line) for line in out.lines() if "files of the previous job" in line]
        assert (line["level"], line["plugin"], line["job_id"]) == ("warn", "once", second)
        assert line["message"].startswith(f"the files of the previous job {first} are gone")


def graph(running: Running, job_id: str) -> list[dict[str, Any]]:
    gateway = running.gateway
    return job_tree.graph(gateway.ledger, job_id, gateway.compiled.redactor)
