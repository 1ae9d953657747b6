"""A changed plugin runs on recorded requests, and leaves nothing behind."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path
from typing import Any

import pytest

from ductile.core.values.differences import IgnoredPaths
from ductile.errors import NotFound, Refused
from ductile.operations.compare import recorded
from ductile.operations.compare.confinement import confine
from ductile.operations.compare.plugin import PluginComparison, build_changed, compare_plugin
from ductile.operations.compare.temporary_slot import Interrupted, TemporarySlot
from ductile.runner.sandbox.policy import Support
from tests.engine.site import Running, Site
from tests.operations.compare.scenario import SECRET, WORKER, dump_ledger, text_of
from tests.operations.plan.test_plan import list_files


def compare(running: Running, **more: Any) -> dict[str, Any]:
    return compare_plugin(running.gateway, PluginComparison("worker", **more), TemporarySlot())


def verdicts(page: dict[str, Any]) -> list[str]:
    return [row["verdict"] for row in page["jobs"]]


def test_changed_plugin_is_compared_and_leaves_nothing_behind(
    worked: Running, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = list_files(site.folder), dump_ledger(worked.gateway)
    unchanged = compare(worked)
    assert verdicts(unchanged) == ["identical"] * 4
    assert (unchanged["is_loaded"], unchanged["cursor"]) == (True, None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        changed = tmp_path / "worker"
        shutil.copytree(site.plugins / "worker", changed)
        connect = (
            "import socket\n"
            "try:\n"
            f"    socket.create_connection(('127.0.0.1', {listener.getsockname()[1]}))\n"
            "    reached = 'network'\n"
            "except OSError:\n"
            "    reached = None\n"
            f"for folder in {[str(site.folder), str(tmp_path)]!r}:\n"
            "    try:\n"
            "        open(folder + '/left-behind', 'w')\n"
            "        reached = 'files'\n"
            "    except OSError:\n"
            "        pass\n"
        )
        script = WORKER.replace("files = []", f"{connect}files = []", 1)
        script = script.replace('"size": payload.get("size")}\n', '"size": reached}\n', 1)
        (changed / "run").write_text(script)
        found = compare(worked, directory=changed)
        assert verdicts(found) == ["identical", "identical", "different", "different"]
        assert found["jobs"][2]["differences"] == [
            {"path": "result.size", "before": 3, "after": None}
        ]
        assert found["summary"]["fields"] == [{"path": "result.size", "jobs": 2}]
        with pytest.raises(BlockingIOError):
            listener.accept()
        ignored = compare(worked, directory=changed, ignored=IgnoredPaths(["result.size"]))
        assert verdicts(ignored)[2:] == ["ignored", "ignored"]
        allowed = compare(worked, directory=changed, allow_network=True)
        assert allowed["jobs"][2]["differences"][0]["after"] == "network"
    (changed / "run").write_text(WORKER.replace("n + 1", "n / 0", 1))
    broken = compare(worked, directory=changed)
    assert verdicts(broken) == ["identical", "failed", "failed", "failed"]
    assert "ZeroDivisionError" in broken["jobs"][1]["differences"][1]["after"]
    assert (list_files(site.folder), dump_ledger(worked.gateway)) == before
    assert not (site.state / "sandbox").exists()
    for page in (unchanged, found, allowed, broken):
        assert SECRET not in text_of(page)
        assert "canary-of-the-state" not in text_of(page)
    # What is only known since a later update is said, not guessed.
    assert "no value of the state" in unchanged["jobs"][-1]["notes"][0]
    pages = [compare(worked, limit=1)]
    pages.append(compare(worked, limit=1, before=pages[0]["cursor"] or 2**40))
    assert [len(page["jobs"]) for page in pages] == [1, 1]
    # Of a long queue, one call looks at a part.
    monkeypatch.setattr(recorded, "MAX_SCANNED", 3)
    monkeypatch.setattr(recorded, "SCANNED_AT_ONCE", 1)
    newest = compare(worked)
    oldest = compare(worked, before=newest["cursor"])
    assert [len(page["jobs"]) for page in (newest, oldest)] == [3, 1]
    assert oldest["cursor"] is None


def test_impossible_comparison_is_refused_with_its_reason(site: Site, tmp_path: Path) -> None:
    site.plugin("worker", WORKER, config={"api_key": SECRET})
    other = shutil.copytree(site.plugins / "worker", tmp_path / "other")
    shutil.copytree(other, tmp_path / "another")
    with site.opened() as running:
        gateway = running.gateway
        with pytest.raises(NotFound, match="no job that has ended"):
            compare(running)
        with pytest.raises(Refused, match="has a plugin with the same name"):
            build_changed(gateway, "worker", other)
        with pytest.raises(Refused, match="no plugin that elsewhere uses"):
            build_changed(gateway, "elsewhere", tmp_path / "another")
        blind = Support(0, seccomp=False)
        with pytest.raises(Refused, match="cannot isolate a plugin from the network"):
            confine(
                gateway.compiled,
                "worker",
                allow_network=False,
                reads_everything=True,
                temporary=tmp_path,
                support=blind,
            )
        slot = TemporarySlot()
        slot.interrupt()
        with pytest.raises(Interrupted):
            slot.check()
