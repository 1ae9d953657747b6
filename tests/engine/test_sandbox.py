"""The sandbox of a plugin, from its manifest and the configuration to a process."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path

import pytest

from ductile.engine.config.compiled import CompiledConfig, build
from ductile.model import SubmittedBy
from ductile.operations import plugin_health
from ductile.operations.dry_run import plugin as plugin_test
from ductile.operations.dry_run.step import step as run_step
from ductile.operations.pipelines import PipelineStart
from ductile.operations.reports.plugin_list import plugins
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.policy import Policy, Support, decode
from tests.engine.site import OK, PYTHON, Site

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


@pytest.mark.parametrize("granted", ["/", "/proc", "state", "config"])
def test_state_configuration_and_processes_are_never_granted(site: Site, granted: str) -> None:
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
    for file in (f"/proc/{os.getpid()}/environ", "/proc/1/environ"):
        assert not reaches((*found.read, *found.write), Path(file))
    assert ("/proc/loadavg" in found.read) == (granted in ("/", "/proc"))
    assert reaches(found.read, site.plugins / "echo")


@pytest.mark.parametrize("granted", ["/", "/dev"])
def test_disks_are_granted_only_by_their_name(site: Site, granted: str) -> None:
    devices = [path for path in Path("/dev").rglob("*") if not path.is_symlink()]
    disks = [path for path in devices if path.is_block_device()]
    site.plugin("echo", OK, sandbox={"read": [granted], "write": [granted]})
    found = policy(site)
    assert "/dev/null" in found.read
    assert reaches(found.write, Path("/dev/pts/0"))
    assert [disk for disk in disks if reaches((*found.read, *found.write), disk)] == []
    for disk in disks[:1]:
        site.plugin("echo", OK, sandbox={"read": [str(disk)]})
        assert str(disk) in policy(site).read


def test_configuration_elsewhere_and_credentials_are_never_granted(
    site: Site, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "credentials").mkdir(parents=True)
    for name in ("more.yaml", "data", "credentials/token"):
        (elsewhere / name).write_text("{}")
    folder = site.plugin("echo", OK, sandbox={"read": [str(elsewhere)]})
    (folder / "own.yaml").write_text("{}")
    site.environ["CREDENTIALS_DIRECTORY"] = str(elsewhere / "credentials")
    site.settings["include"] = [str(elsewhere / "more.yaml"), str(folder / "own.yaml")]
    found = policy(site)
    assert reaches(found.read, elsewhere / "data")
    assert not reaches(found.read, elsewhere / "more.yaml")
    assert not reaches(found.read, elsewhere / "credentials" / "token")
    # Or it could not find its modules.
    assert str(folder) in found.read


@pytest.mark.parametrize("home", ["shims", "bin"])
def test_plugin_cannot_name_other_directories_as_its_interpreter(
    site: Site, tmp_path: Path, home: str
) -> None:
    private = tmp_path / "private"
    (private / "lib" / "python3").mkdir(parents=True)
    (private / "bin").mkdir()
    (private / "bin" / "python3").symlink_to(sys.executable)
    folder = site.plugin("echo", "", manifest="sandbox: {level: enforce}\n")
    (folder / "bin").mkdir()
    (folder / "bin" / "python3").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text(f"home = {private / home}\n")
    site.plugin("echo", f"#!{folder}/bin/python3\n", manifest="sandbox: {level: enforce}\n")
    found = policy(site)
    assert reaches(found.read, Path(sys.base_prefix) / "bin")
    assert not reaches(found.read, private / "key")


def test_keys_in_the_directories_of_certificates_are_not_readable(site: Site) -> None:
    site.plugin("echo", OK, sandbox={"level": "enforce"})
    found = policy(site)
    for file in ("/etc/ssl/private/key.pem", "/etc/pki/tls/private/key.pem"):
        assert not reaches(found.read, Path(file))
    assert reaches(found.read, Path("/etc/ssl/certs"))


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


def test_sandboxed_plugin_starts_warm_unless_code_runs_outside(site: Site, tmp_path: Path) -> None:
    line, warm = f"#!{sys.executable}\n", "runtime: {python: warm}\nsandbox: {}\n"
    own = site.plugin("own", "", manifest=warm)
    (own / "bin").mkdir()
    (own / "bin" / "python3").symlink_to(sys.executable)
    site.plugin("own", f"#!{own}/bin/python3\n", manifest=warm)
    site.plugin("plain", line, manifest=warm)
    site.plugin("path", line, manifest=warm, env={"PYTHONPATH": str(tmp_path)})
    site.plugin("quiet", line, manifest=warm, env={"PYTHONUNBUFFERED": "1"})
    site.plugin("writes", line, manifest=warm, sandbox={"write": [sys.prefix]})
    # Python finds it also where HOME is not set.
    home = pwd.getpwuid(os.getuid()).pw_dir
    site.plugin("user", line, manifest=warm, sandbox={"write": [f"{home}/.local/lib"]})
    site.plugin("loader", line, manifest=warm, env={"LD_PRELOAD": str(tmp_path / "own.so")})
    program = "runtime: {python: warm, preload: [unittest.__main__]}\nsandbox: {}\n"
    site.plugin("program", line, manifest=program)
    site.plugin("free", line, manifest="runtime: {python: warm}\n")
    site.environ.pop("HOME", None)
    plans = built(site).plans
    for name in ("plain", "quiet", "free"):
        found = plans[name].warm
        assert found is not None, plans[name].cold_reason
        assert found.is_confined == (name != "free")
    refused = {"own": "interpreter", "path": "PYTHONPATH", "writes": "interpreter"}
    refused |= {"user": "packages", "loader": "LD_PRELOAD", "program": "__main__"}
    for name, reason in refused.items():
        assert plans[name].warm is None
        assert reason in plans[name].cold_reason


@pytest.mark.parametrize("abi", [0, 3, 4])
def test_gaps_of_the_kernel_are_shown_and_refused_by_enforce(
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
    assert "not enforced: " in (compiled.rules("kind", "poll").sandbox or "")


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
def test_hostile_job_of_a_gateway_is_refused_and_reports_what_held(site: Site) -> None:
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
    assert line["message"].startswith("sandbox: enforce; enforced: files, network")
    assert list((settings.state_dir / "tmp").iterdir()) == []


REPORT = (
    PYTHON
    + """request = json.load(sys.stdin)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
kind = request["command"] + (" of a step" if "event" in request else "")
with open(request["config"]["report"], "a") as file:
    print(kind, status["NoNewPrivs"].strip(), status["Seccomp"].strip(), file=file)
print(json.dumps({"status": "ok", "result": "x"}))
"""
)


@needs_kernel
def test_every_way_to_start_a_plugin_has_the_sandbox_of_the_service(
    site: Site, tmp_path: Path
) -> None:
    (tmp_path / "reports").mkdir()
    report = tmp_path / "reports" / "report"
    site.settings["service"]["sandbox"] = "enforce"
    site.settings["pipelines"] = [
        {"name": "main", "on": "begin", "steps": [{"id": "first", "uses": "echo"}]}
    ]
    commands = ("init", "health", "poll", "handle")
    granted = {"write": [str(report.parent)]}
    site.plugin("echo", REPORT, commands=commands, config={"report": str(report)}, sandbox=granted)
    with site.running() as running:
        gateway = running.gateway

        def started() -> list[str]:
            lines = report.read_text().splitlines()
            report.unlink()
            return lines

        assert running.run("echo")["status"] == "succeeded"
        assert started() == ["init 1 2", "poll 1 2"]
        plugin_health.check_plugins(
            gateway.compiled, gateway.ledger, gateway.clock, gateway.entropy
        )
        assert started() == ["health 1 2"]
        wanted = plugin_test.PluginTest("echo", "poll", {}, {})
        plugin_test.run(gateway.compiled, wanted, gateway.clock.now(), gateway.entropy)
        assert started() == ["poll 1 2"]
        gateway.ledger.write(PipelineStart(gateway, "main", {}, SubmittedBy.API))
        running.notice("pipeline.ended")
        assert started() == ["handle of a step 1 2"]
        pipeline = gateway.compiled.tx_config.router.pipelines["main"]
        run_step(gateway, pipeline, "first", None)
        assert started() == ["handle of a step 1 2"]
