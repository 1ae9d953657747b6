"""The environment, descriptors and directory of a plugin process."""

from __future__ import annotations

import os
from zoneinfo import ZoneInfo

import pytest

from ductile.engine.config.compile_schedules import local_zone
from ductile.plugins.variables import plugin_environment
from tests.engine.site import PYTHON, Site

INSPECT = (
    PYTHON + "links = {n: os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd')"
    " if os.path.exists('/proc/self/fd/' + n)}\n"
    "found = {'env': dict(os.environ), 'fds': sorted(links), 'cwd': os.getcwd(),\n"
    "         'leads': os.getpgid(0) == os.getpid()}\n"
    "print(json.dumps({'status': 'ok', 'result': found}))\n"
)


def run_inspector(site: Site) -> dict:
    with site.running() as running:
        job = running.run("inspect")
    assert job["status"] == "succeeded"
    return job["result"]["result"]


def test_plugin_inherits_only_allowed_variables(site: Site) -> None:
    site.plugin("inspect", INSPECT)
    site.environ |= {
        "LC_ALL": "C.UTF-8",
        "LANG": "C",
        "AWS_SECRET_ACCESS_KEY": "hunter2hunter2",
        "LD_PRELOAD": "/evil.so",
        "PYTHONPATH": "/evil",
        "HTTPS_PROXY": "http://proxy",
        "DUCTILE_TOKEN": "hunter2hunter2",
    }
    site.settings["service"]["plugin_env_passthrough"] = ["HTTPS_PROXY"]
    env = run_inspector(site)["env"]
    # Python adds this variable if the locale is C.
    env.pop("LC_CTYPE", None)
    assert env.pop("DUCTILE_BOOT")
    assert env == {
        "PATH": site.environ["PATH"],
        "HOME": str(site.folder),
        "TZ": "UTC",
        "LANG": "C",
        "LC_ALL": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy",
        "DUCTILE_PLUGIN": "inspect",
    }


def test_allowlist_of_inherited_variables() -> None:
    allowed = ("PATH", "HOME", "LANG", "LC_TIME", "TZ", "TMPDIR", "USER", "SHELL")
    kept = plugin_environment(dict.fromkeys((*allowed, "LOGNAME", "TEMP"), "x"), (), "m:b")
    assert kept == {**dict.fromkeys(allowed, "x"), "DUCTILE_BOOT": "m:b"}


def test_plugin_has_only_the_three_standard_descriptors(site: Site) -> None:
    site.plugin("inspect", INSPECT)
    assert run_inspector(site)["fds"] == ["0", "1", "2"]


def test_plugin_has_the_gateways_directory_and_leads_its_process_group(site: Site) -> None:
    site.plugin("inspect", INSPECT)
    found = run_inspector(site)
    assert (found["cwd"], found["leads"]) == (os.getcwd(), True)


def test_path_defaults_to_the_system_path() -> None:
    assert plugin_environment({}, (), "m:b")["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_boot_marker_cannot_be_overridden() -> None:
    env = plugin_environment({"DUCTILE_BOOT": "theirs:1"}, ("DUCTILE_BOOT",), "ours:2")
    assert env["DUCTILE_BOOT"] == "ours:2"


@pytest.mark.parametrize("name", ["Europe/Vienna", ":Europe/Vienna"])
def test_local_zone_comes_from_the_environment(name: str) -> None:
    assert local_zone({"TZ": name}) == ZoneInfo("Europe/Vienna")


@pytest.mark.parametrize("name", ["", "nosuch/zone", "../../etc/passwd", "CET-1CEST", "\0"])
def test_unknown_zone_falls_back_to_the_machines(name: str) -> None:
    assert local_zone({"TZ": name}) == local_zone({})
