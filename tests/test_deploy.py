"""The files in `deploy/` fit the program that they start."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest
import yaml

from ductile.cli.main import root
from ductile.config.models.service import ServiceSettings
from ductile.engine.observability.systemd import STOP_MARGIN
from ductile.errors import ConfigError

DEPLOY = Path(__file__).parents[1] / "deploy"
UNIT = (DEPLOY / "ductile.service").read_text(encoding="utf-8")
CONTAINER = (DEPLOY / "Containerfile").read_text(encoding="utf-8")


def setting(name: str) -> str:
    [value] = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return str(value)


def exists(words: list[str]) -> bool:
    """Whether this is a command of ours, with options that it has."""
    found: click.Command | None = root
    for word in words:
        if isinstance(found, click.Group):
            found = found.get_command(click.Context(found), word)
    assert found is not None
    flags = {flag for param in found.params for flag in param.opts}
    return {word for word in words if word.startswith("--")} <= flags


def test_the_unit_starts_and_reloads_the_gateway() -> None:
    program, *words = setting("ExecStart").split()
    assert Path(program).name == "ductile"
    assert exists(words)
    assert setting("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_unit_uses_the_notifications_of_the_gateway() -> None:
    assert (setting("Type"), setting("NotifyAccess")) == ("notify", "main")
    assert int(setting("WatchdogSec")) >= 30


def test_the_unit_permits_what_restricts_plugins() -> None:
    filters = re.findall(r"^SystemCallFilter=(.*)$", UNIT, re.MULTILINE)
    permitted = {word for line in filters for word in line.split()}
    landlock = {f"landlock_{name}" for name in ("create_ruleset", "add_rule", "restrict_self")}
    # `@system-service`, which permits prctl and prlimit64, does not contain these.
    assert permitted >= {"@system-service", "seccomp", *landlock}
    assert setting("NoNewPrivileges") == "yes"
    assert "MemoryDenyWriteExecute=" not in UNIT


def test_a_stop_is_the_gateways_own_and_has_the_time_it_needs() -> None:
    assert setting("KillMode") == "mixed"
    grace = ServiceSettings().shutdown_grace
    assert int(setting("TimeoutStopSec")) >= grace + STOP_MARGIN


def test_a_configuration_that_cannot_run_is_not_tried_again() -> None:
    assert setting("RestartPreventExitStatus") == str(ConfigError.exit_code)


def test_plugin_out_of_memory_does_not_take_the_gateway_with_it() -> None:
    assert setting("OOMPolicy") == "continue"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here")
def test_systemd_understands_every_line(tmp_path: Path) -> None:
    text = re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", UNIT, flags=re.MULTILINE)
    text = re.sub(r"^(User|Group)=.*$", r"\1=root", text, flags=re.MULTILINE)
    path = tmp_path / "ductile.service"
    path.write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_image_runs_existing_commands_as_an_unprivileged_user() -> None:
    [start] = re.findall(r'^CMD \["(.*)"\]$', CONTAINER, re.MULTILINE)
    [check] = re.findall(r'^  CMD \["ductile", "(.*)"\]$', CONTAINER, re.MULTILINE)
    assert exists(start.split('", "'))
    assert exists(check.split('", "'))
    [user] = re.findall(r"^USER (.*)$", CONTAINER, re.MULTILINE)
    assert user.isdecimal()
    assert int(user) > 0


def test_volumes_of_the_nodes_belong_to_the_user_of_the_image() -> None:
    """A new volume gets the owner of the directory that it is mounted on, or root without one."""
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    mounts = [mount.split(":") for mount in compose["x-node"]["volumes"]]
    own = re.findall(r"install -d -o 10001 -g 10001 -m \d+ (\S+)", CONTAINER)
    assert {target for source, target, *_ in mounts if source in compose["volumes"]} <= set(own)


@pytest.mark.parametrize("path", re.findall(r"^COPY (?!--from)(\S+) ", CONTAINER, re.MULTILINE))
def test_files_that_the_image_copies_exist(path: str) -> None:
    assert (DEPLOY.parent / path).exists()
