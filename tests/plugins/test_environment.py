"""What a plugin's process finds around it."""

from __future__ import annotations

import os
from zoneinfo import ZoneInfo

import pytest

from ductile.plugins.environment import local_zone, plugin_environment
from tests.engine.site import PYTHON, Site

LOOK = (
    PYTHON + "links = {n: os.readlink('/proc/self/fd/' + n) for n in os.listdir('/proc/self/fd')"
    " if os.path.exists('/proc/self/fd/' + n)}\n"
    "found = {'env': dict(os.environ), 'fds': sorted(links), 'cwd': os.getcwd(),\n"
    "         'leads': os.getpgid(0) == os.getpid()}\n"
    "print(json.dumps({'status': 'ok', 'result': found}))\n"
)


def looked(site: Site) -> dict:
    with site.running() as house:
        job = house.run("look")
    assert job["status"] == "succeeded"
    return job["result"]["result"]


def test_a_plugin_inherits_what_is_allowed_and_our_own_marks_only(site: Site) -> None:
    site.plugin("look", LOOK)
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
    env = looked(site)["env"]
    # Python itself adds one where the locale is C.
    env.pop("LC_CTYPE", None)
    assert env.pop("DUCTILE_BOOT")
    assert env == {
        "PATH": site.environ["PATH"],
        "HOME": str(site.folder),
        "TZ": "UTC",
        "LANG": "C",
        "LC_ALL": "C.UTF-8",
        "HTTPS_PROXY": "http://proxy",
        "DUCTILE_PLUGIN": "look",
    }


def test_what_may_be_inherited_is_this_and_no_more() -> None:
    """SPEC §3."""
    allowed = ("PATH", "HOME", "LANG", "LC_TIME", "TZ", "TMPDIR", "USER", "SHELL")
    kept = plugin_environment(dict.fromkeys((*allowed, "LOGNAME", "TEMP"), "x"), (), "m:b")
    assert kept == {**dict.fromkeys(allowed, "x"), "DUCTILE_BOOT": "m:b"}


def test_a_plugin_has_the_standard_three_descriptors_and_no_other(site: Site) -> None:
    """Whatever the gateway has open: ledger, lock, sockets."""
    site.plugin("look", LOOK)
    assert looked(site)["fds"] == ["0", "1", "2"]


def test_a_plugin_starts_where_the_gateway_does_and_leads_its_group(site: Site) -> None:
    site.plugin("look", LOOK)
    found = looked(site)
    assert (found["cwd"], found["leads"]) == (os.getcwd(), True)


def test_without_a_path_of_its_own_a_plugin_has_the_systems() -> None:
    assert plugin_environment({}, (), "m:b")["PATH"] == "/usr/local/bin:/usr/bin:/bin"


def test_the_mark_cannot_be_passed_in_from_outside() -> None:
    env = plugin_environment({"DUCTILE_BOOT": "theirs:1"}, ("DUCTILE_BOOT",), "ours:2")
    assert env["DUCTILE_BOOT"] == "ours:2"


@pytest.mark.parametrize("name", ["Europe/Vienna", ":Europe/Vienna"])
def test_the_local_zone_is_the_environments(name: str) -> None:
    assert local_zone({"TZ": name}) == ZoneInfo("Europe/Vienna")


@pytest.mark.parametrize("name", ["", "nosuch/zone", "../../etc/passwd", "CET-1CEST", "\0"])
def test_a_zone_that_nobody_knows_leaves_the_machines_own(name: str) -> None:
    assert local_zone({"TZ": name}) == local_zone({})
