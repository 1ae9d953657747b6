"""`ductile system stop`, and gateways at any directory depth."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace

import pytest

from tests.cli.runner import CliRunner
from tests.waiting import WAIT_LIMIT, until


def test_stop_ends_the_gateway_and_waits_for_it(cli: CliRunner) -> None:
    with cli.gateway() as gateway:
        planned = cli("system", "stop", "--dry-run")
        assert planned.out == f"would stop the gateway (pid {gateway.pid}) in {cli.state}\n"
        assert gateway.poll() is None
        done = cli("system", "stop", "--json")
        assert (done.code, done.json["pid"]) == (0, gateway.pid)
        assert gateway.wait(WAIT_LIMIT) == 0
    assert not (cli.state / "ductile.sock").exists()
    again = cli("system", "stop", "--json")
    assert (again.code, again.json["code"]) == (1, "not_running")


def test_stop_ignores_the_pid_in_the_lock_file(cli: CliRunner) -> None:
    with cli.gateway() as gateway:
        (cli.state / "ductile.lock").write_text("1\n")
        assert cli("system", "stop", "--json").json["pid"] == gateway.pid
        assert gateway.wait(WAIT_LIMIT) == 0


def test_stop_does_not_signal_a_command_or_a_stranger(cli: CliRunner) -> None:
    for text in (f"{os.getpid()} command\n", "1\n", ""):
        with cli.write("data/ductile.lock", text).open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = cli("system", "stop", "--json")
        assert (done.code, done.json["code"]) == (1, "refused")
        assert "is not a gateway" in done.json["error"]


def test_stop_reports_a_gateway_that_does_not_end_in_time(cli: CliRunner) -> None:
    cli.write("config.yaml", "state: {path: ./data/state.db}\nplugin_roots: [./plugins]\n")
    cli.plugin("slow", "trap '' TERM; sleep 20")
    with cli.gateway():
        cli("plugin", "run", "slow", "--async")
        until(lambda: cli("system", "status", "--json").json["running"] == 1)
        done = cli("system", "stop", "--timeout", "0", "--json")
        assert (done.code, done.json["code"]) == (1, "refused")
        assert "has not ended after 0 s" in done.json["error"]


def test_stop_needs_no_valid_configuration(cli: CliRunner) -> None:
    with cli.gateway() as gateway:
        cli.write("config.yaml", "state: {path: ./data/state.db}\nnonsense: true\n")
        assert cli("system", "stop").code == 0
        assert gateway.wait(WAIT_LIMIT) == 0


def test_removed_socket_is_bound_again(cli: CliRunner) -> None:
    with cli.gateway():
        path = cli.state / "ductile.sock"
        path.unlink()
        until(path.exists)
        assert path.stat().st_mode & 0o777 == 0o600
        assert cli("system", "status", "--json").json["running_gateway"] is True


@pytest.mark.parametrize("letters", [100, 150, 200])
def test_gateway_works_at_any_directory_depth(cli: CliRunner, letters: int) -> None:
    """The kernel limits the address of a socket to 107 bytes."""
    root = cli.root / ("d" * letters) / ("e" * letters)
    deep = replace(cli, root=root)
    deep.write("config.yaml", "state: {path: ./data/state.db}\nplugin_roots: [./plugins]\n")
    deep.plugin("hello", """printf '{"status":"ok","result":"hi"}'""")
    with deep.gateway() as gateway:
        assert deep("plugin", "run", "hello", "--json").json["status"] == "succeeded"
        assert deep("system", "doctor", "--json").json["ok"] is True
        (deep.state / "ductile.sock").unlink()
        until((deep.state / "ductile.sock").exists)
        assert deep("system", "stop").code == 0
        assert gateway.wait(WAIT_LIMIT) == 0
