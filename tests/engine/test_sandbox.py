"""The sandbox of a plugin, from its manifest and the configuration to a process."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ductile.engine.config.compiled import CompiledConfig, build
from ductile.operations.status import plugins
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.policy import Policy, Support, decode
from tests.engine.site import OK, Site

OWN = restrict.probe()
needs_kernel = pytest.mark.skipif(
    OWN.abi < 6 or not OWN.seccomp, reason="needs Landlock ABI 6 and seccomp filters"
)


def built(site: Site) -> CompiledConfig:
    return build(site.load(), boot_marker="", environ=site.environ)


def policy(site: Site, name: str = "echo") -> Policy:
    plan = built(site).plans[name]
    assert plan.sandbox is not None
    return decode(plan.sandbox.policy)


def reaches(paths: tuple[str, ...], file: Path) -> bool:
    real = file.resolve()
    return any(Path(path) in (real, *real.parents) for path in paths)


def test_a_plugin_without_a_block_has_no_sandbox(site: Site) -> None:
    site.plugin("echo", OK)
    assert built(site).plans["echo"].sandbox is None


def test_the_rule_of_the_service_is_for_all_plugins(site: Site) -> None:
    site.plugin("echo", OK)
    site.settings["service"]["sandbox"] = "enforce"
    sandbox = built(site).plans["echo"].sandbox
    assert sandbox is not None
    assert sandbox.spec.level == "enforce"


def test_by_default_the_own_directory_and_the_system_are_readable(site: Site) -> None:
    folder = site.plugin("echo", OK, manifest="sandbox: {level: best_effort}\n")
    found = policy(site)
    assert reaches(found.read, folder)
    assert reaches(found.read, Path("/usr/bin/env"))
    assert (found.network, found.write) == ("none", ())
    assert not reaches(found.read, Path("/etc/shadow"))


@pytest.mark.parametrize("granted", ["/", "state", "config"])
def test_state_and_configuration_are_never_granted(site: Site, granted: str) -> None:
    site.plugin("echo", OK)
    loaded = site.load()
    private = {"state": loaded.settings.state_dir, "config": loaded.settings.config_dir}
    path = str(private.get(granted, granted))
    site.plugin("echo", OK, sandbox={"read": [path], "write": [path]})
    found = policy(site)
    for folder in private.values():
        ledger = folder / "state.db"
        assert not reaches(found.write, ledger)
        assert not reaches(found.read, ledger)
    assert reaches(found.read, site.plugins / "echo")


def test_the_configuration_narrows_what_the_manifest_asks_for(site: Site, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "a").mkdir(parents=True)
    (outside / "b").mkdir()
    wanted = f"sandbox: {{network: all, read: [{outside}], memory: 1GB}}\n"
    granted = {"network": [443], "read": [str(outside / "a")], "memory": "512MB"}
    site.plugin("echo", OK, manifest=wanted, sandbox=granted)
    found = policy(site)
    assert (found.network, found.ports, found.memory) == ("ports", (443,), 512 << 20)
    assert reaches(found.read, outside / "a")
    assert not reaches(found.read, outside / "b")


def test_a_sandboxed_plugin_is_not_started_warm(site: Site) -> None:
    manifest = "runtime: {python: warm}\nsandbox: {}\n"
    site.plugin("echo", "#!/usr/bin/env python3\n", manifest=manifest)
    plan = built(site).plans["echo"]
    assert plan.warm is None
    assert "sandbox" in plan.cold_reason


@pytest.mark.parametrize("abi", [0, 3, 4])
def test_what_the_kernel_does_not_hold_is_shown_and_refused_if_enforced(
    site: Site, monkeypatch: pytest.MonkeyPatch, abi: int
) -> None:
    monkeypatch.setattr(restrict, "probe", lambda: Support(abi, True))
    site.plugin("kind", OK, manifest="sandbox: {level: best_effort, network: [443]}\n")
    site.plugin("strict", OK, manifest="sandbox: {level: enforce, network: [443]}\n")
    compiled = built(site)
    rows = {row["name"]: row for row in plugins(compiled, {})}
    assert rows["kind"]["state"] == "ready"
    assert "signals" in rows["kind"]["sandbox"]["not_held"]
    assert ("network" in rows["kind"]["sandbox"]["not_held"]) == (abi < 4)
    assert "files" in (*rows["kind"]["sandbox"]["held"], *rows["kind"]["sandbox"]["not_held"])
    assert "Landlock ABI 6" in rows["strict"]["reason"]
    assert rows["strict"]["state"] == "unhealthy"
    assert "not held: " in (compiled.rules("kind", "poll").sandbox or "")


def test_an_unknown_key_of_the_block_is_refused(site: Site) -> None:
    site.plugin("echo", OK, manifest="sandbox: {netwrok: none}\n")
    assert built(site).registry.refusal("echo") is not None


HOSTILE = """#!@PYTHON@ -IS
import json, os, socket, sys
request = json.load(sys.stdin)
def attempt(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return os.strerror(error.errno)
    return "ok"
found = {
    "ledger": attempt(open, @STATE@ + "/state.db"),
    "config": attempt(open, @CONFIG@ + "/config.yaml"),
    "socket": attempt(lambda: socket.socket(socket.AF_UNIX).connect(@STATE@ + "/ductile.sock")),
    "temporary": attempt(open, os.environ["TMPDIR"] + "/x", "w"),
    "own": attempt(open, __file__),
}
print(json.dumps({"status": "ok", "result": json.dumps(found)}))
"""


@needs_kernel
def test_a_hostile_job_of_a_gateway_is_refused_and_says_what_held(site: Site) -> None:
    settings = site.load().settings
    text = HOSTILE.replace("@PYTHON@", sys.executable).replace(
        "@STATE@", repr(str(settings.state_dir))
    )
    text = text.replace("@CONFIG@", repr(str(settings.config_dir)))
    site.plugin("hostile", text, manifest="sandbox: {level: enforce}\n", retry={"max_attempts": 1})
    with site.running() as gateway:
        job = gateway.run("hostile", "poll")
    refused = "Permission denied"
    assert (job["status"], job["last_error"]) == ("succeeded", None), str(job["attempts"])
    assert json.loads(job["result"]["result"]) == {
        "ledger": refused,
        "config": refused,
        "socket": refused,
        "temporary": "ok",
        "own": "ok",
    }
    [line] = job["attempts"][0]["logs"]
    assert line["message"].startswith("sandbox: enforce; held: files, network")
    assert list((settings.state_dir / "tmp").iterdir()) == []
