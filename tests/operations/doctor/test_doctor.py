"""The doctor finds each thing that is wrong, says why, and names a command that exists."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from shlex import quote
from typing import Any

import click
import pytest

import ductile
from ductile.cli.main import main, root
from ductile.engine.instance_lock import InstanceLock, LockHolder
from ductile.errors import LedgerError
from ductile.model import NewJob, SubmittedBy
from ductile.operations import doctor
from ductile.operations.doctor import (
    DoctorContext,
    Finding,
    config,
    context,
    files,
    process,
    work,
)
from ductile.runner.sandbox import restrict
from ductile.runner.sandbox.policy import Support
from ductile.store.jobs import claim
from ductile.store.jobs import enqueue as store
from ductile.store.jobs.claim import ClaimPolicy
from tests.engine.site import OK, Site
from tests.operations.doctor.harness import ERROR, WARNING, examine, find_one, run_with_socket
from tests.ports import find_free_port
from tests.waiting import until


@pytest.fixture
def place(site: Site) -> Site:
    """With one good plugin."""
    site.plugin("echo", OK)
    site.folder.chmod(0o700)
    return site


def test_with_a_gateway_that_is_well_nothing_is_wrong(place: Site) -> None:
    with run_with_socket(place) as (site_run, asking):
        site_run.run("echo")
        assert examine(place, **asking) == []


def test_without_a_gateway_only_that_is_reported(place: Site) -> None:
    with place.opened():
        pass
    [finding] = examine(place)
    assert (finding.severity, finding.what) == (WARNING, "no gateway is running")
    assert finding.run == f"ductile system start --config {place.folder}/config.yaml"


def test_missing_ledger_before_the_first_start_is_not_a_finding(place: Site) -> None:
    assert [finding.what for finding in examine(place)] == ["no gateway is running"]


def test_errors_come_first(place: Site) -> None:
    place.settings["plugin_roots"] = [str(place.plugins)]
    (place.plugins / "echo").chmod(0o777)
    found = examine(place)
    assert [finding.severity for finding in found] == [ERROR, WARNING]


def test_a_check_that_stumbles_does_not_hide_the_others(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumbles(_context: DoctorContext) -> Iterator[Finding]:
        raise RuntimeError("a stone")
        yield

    monkeypatch.setattr(doctor, "CHECKS", (stumbles, *doctor.CHECKS))
    found = examine(place)
    assert find_one(found, "stumbles failed").why == "RuntimeError: a stone"
    assert find_one(found, "no gateway is running")


# The configuration


def test_a_configuration_that_does_not_load(place: Site) -> None:
    place.settings["service"]["max_workers"] = "${WORKERS_WANTED}"
    finding = find_one(examine(place), "WORKERS_WANTED")
    assert (finding.severity, finding.topic) == (ERROR, "config")
    assert str(finding.run).startswith("${EDITOR:-vi} +")


def test_configuration_that_does_not_load_does_not_hide_the_ledger(place: Site) -> None:
    with place.opened():
        pass
    place.settings["service"]["max_workers"] = "${WORKERS_WANTED}"
    place.state.chmod(0o755)
    found = examine(place)
    assert find_one(found, "WORKERS_WANTED").topic == "config"
    assert find_one(found, "is accessible to every user").topic == "files"


def test_missing_configuration(tmp_path: Path) -> None:
    subject = DoctorContext(None, {"HOME": str(tmp_path)}, datetime.now(UTC))
    assert find_one(doctor.examine(subject), "there is no config.yaml").severity is ERROR


def test_pipelines_that_cannot_run(place: Site) -> None:
    place.settings["routes"] = [{"from": "echo", "event_type": "x", "to": "nobody"}]
    assert find_one(examine(place), "nobody").severity is ERROR


def test_command_of_a_misspelt_value_corrects_it(place: Site) -> None:
    place.settings["pipelines"] = [{"name": "p", "on": "x", "steps": [{"uses": "ecko"}]}]
    finding = find_one(examine(place), "ecko")
    words = shlex.split(str(finding.run))
    assert words[1:5] == ["config", "set", "pipelines[0].steps[0].uses", "echo"]
    assert main(words[1:]) == 0
    assert '"uses": "echo"' in (place.folder / "config.yaml").read_text()


def test_misspelt_key_is_corrected_in_its_line(place: Site) -> None:
    place.settings["service"]["max_wrokers"] = 2
    finding = find_one(examine(place), "max_wrokers")
    subprocess.run(str(finding.run), shell=True, check=True)
    assert '"max_workers": 2' in (place.folder / "config.yaml").read_text()


def test_one_of_several_errors_is_corrected_or_opened_in_its_line(place: Site) -> None:
    place.settings["routes"] = [{"from": "ecko", "event_type": "x", "to": "echi"}]
    lines = [str(each.run) for each in examine(place) if each.topic == "config"]
    assert len(lines) == 2
    assert all(line.startswith(("sed -i ", "${EDITOR:-vi} +")) for line in lines), lines


def test_a_file_that_is_not_sealed_does_not_hide_the_rest(place: Site) -> None:
    place.settings["include"] = ["tokens.yaml"]
    (place.folder / "tokens.yaml").write_text("tokens: []\n")
    (place.folder / "tokens.yaml").chmod(0o600)
    found = examine(place)
    finding = find_one(found, "is not sealed")
    assert finding.severity is ERROR
    assert finding.run is not None
    assert finding.run.startswith("ductile config lock")
    assert find_one(found, "no gateway is running")


def test_warnings_of_the_configuration(place: Site) -> None:
    place.plugin("echo", OK, schedules=[{"cron": "* * * * *", "catch_up": "run_all"}])
    assert find_one(examine(place), "`run_all` to those with `every`").severity is WARNING


def with_token(site: Site, listen: str) -> None:
    tokens = {"tokens": [{"token": "a-token-of-a-test", "scopes": ["*"]}]}
    site.settings["api"] = {"enabled": True, "listen": listen, "auth": tokens}


@pytest.mark.parametrize("listen", ["0.0.0.0:8080", "192.0.2.1:8080", "[::]:8080"])
def test_listener_for_other_machines_without_tls(place: Site, listen: str) -> None:
    with_token(place, listen)
    place.settings["gateway"] = {"open": True}
    found = examine(place)
    finding = find_one(found, "without TLS")
    assert finding.severity is WARNING
    assert finding.run is not None
    assert "config set api.listen=127.0.0.1:8080" in finding.run
    assert find_one(found, "gateway.open").severity is WARNING


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_listener_for_this_machine_needs_no_tls(place: Site, host: str) -> None:
    with_token(place, f"{host}:{find_free_port()}")
    assert [finding.what for finding in examine(place)] == ["no gateway is running"]


def test_variables_that_plugins_are_promised(place: Site) -> None:
    place.settings["service"]["plugin_env_passthrough"] = ["HOME", "PROXY_OF_OURS"]
    assert find_one(examine(place), "PROXY_OF_OURS").run == "export PROXY_OF_OURS=..."


def test_variables_of_a_gateway_that_hides_them_are_not_reported(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.settings["service"]["plugin_env_passthrough"] = ["PROXY_OF_OURS"]
    holder = LockHolder(os.getpid(), is_gateway=True)
    monkeypatch.setattr(context, "find_holder", lambda _: holder)
    monkeypatch.setattr(config, "_variables_of", lambda _: None)
    assert not [finding for finding in examine(place) if "PROXY_OF_OURS" in finding.what]


def test_a_time_zone_that_there_is_not(place: Site) -> None:
    place.environ["TZ"] = "Middle/Earth"
    place.plugin("echo", OK, schedules=[{"every": "1h"}])
    assert find_one(examine(place), "'Middle/Earth'").severity is WARNING
    place.environ["TZ"] = "Europe/Berlin"
    assert [f.what for f in examine(place)] == ["no gateway is running"]


# Files


def test_a_file_with_a_secret_that_everybody_can_read(place: Site) -> None:
    with_token(place, "127.0.0.1:8080")
    path = place.write()
    path.chmod(0o604)
    subject = DoctorContext(path, place.environ, datetime.now(UTC))
    finding = find_one(doctor.examine(subject), "holds secrets")
    assert (finding.severity, finding.run) == (ERROR, f"chmod o-rwx {path}")


def test_a_file_without_one_may_be_read(place: Site) -> None:
    path = place.write()
    path.chmod(0o644)
    subject = DoctorContext(path, place.environ, datetime.now(UTC))
    assert [finding.what for finding in doctor.examine(subject)] == ["no gateway is running"]


def test_a_file_that_everybody_can_change(place: Site) -> None:
    path = place.write()
    path.chmod(0o602)
    subject = DoctorContext(path, place.environ, datetime.now(UTC))
    assert find_one(doctor.examine(subject), "can be changed").run == f"chmod o-w {path}"


def test_a_directory_that_everybody_can_change(place: Site) -> None:
    place.folder.chmod(0o703)
    assert find_one(examine(place), "can be changed").run == f"chmod o-w {place.folder}"


@pytest.mark.parametrize("name", ["", "state.db", "fingerprint.key", "backups/a.db"])
def test_state_that_everybody_can_read(place: Site, name: str) -> None:
    with place.opened():
        pass
    (place.state / "backups").mkdir(mode=0o700)
    path = place.state / name
    if not path.exists():
        path.touch(0o600)
    path.chmod(path.stat().st_mode | 0o004)
    finding = find_one(examine(place), "is accessible to every user")
    assert finding.run == f"chmod o-rwx {path}"


def test_state_of_another_user(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.opened():
        pass
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    finding = find_one(examine(place), "the doctor runs as user 4711")
    assert finding.run is not None
    assert finding.run.startswith("sudo -u '#")


def test_state_on_a_file_system_that_is_mounted_read_only(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.opened():
        pass
    monkeypatch.setattr(files, "is_read_only", lambda _: True)
    finding = find_one(examine(place), "is mounted read-only")
    assert finding.run == f"sudo mount -o remount,rw {files.find_mount(place.folder)}"
    monkeypatch.undo()
    assert not files.is_read_only(place.folder)


def test_a_disk_that_is_almost_full(place: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FEW_BYTES", 2**62)
    assert find_one(examine(place), "MiB are free").severity is WARNING
    monkeypatch.setattr(files, "LEAST_BYTES", 2**62)
    assert find_one(examine(place), "MiB are free").severity is ERROR
    monkeypatch.setattr(files, "LEAST_INODES", 2**62)
    assert find_one(examine(place), "inodes are free").severity is ERROR


# Plugins


def test_refused_plugin_is_reported_with_its_repair(place: Site) -> None:
    place.settings["plugin_roots"] = [str(place.plugins)]
    (place.plugins / "echo").chmod(0o777)
    finding = find_one(examine(place), "plugin echo is refused")
    assert finding.run == f"chmod o-w {place.plugins}/echo"


def test_place_of_a_refusal_is_opened(place: Site) -> None:
    manifest = place.plugin("tool", "exit 0") / "manifest.yaml"
    text = manifest.read_text()
    manifest.write_text(text.replace("protocol: ", "protocol: x"))
    place.settings["plugins"]["gone"] = {}
    found = examine(place)
    broken = find_one(found, "plugin tool is refused")
    [line] = [n for n, each in enumerate(text.split("\n"), 1) if each.startswith("protocol:")]
    assert broken.run == f"${{EDITOR:-vi}} +{line} {manifest}"
    gone = find_one(found, "plugin gone is refused")
    assert f"; it is configured at {place.folder}/config.yaml:" in gone.why
    assert str(gone.run).endswith(f" {place.folder}/config.yaml")


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("#!/usr/bin/no-such-thing -x", "/usr/bin/no-such-thing"),
        ("#!/usr/bin/env -S nosuch", "nosuch"),
        ("#!/bin/pytho$(touch$IFS/tmp/x)n3", "/bin/pytho$(touch$IFS/tmp/x)n3"),
        ("#!/bin/python3|x|e", "/bin/python3|x|e"),
    ],
)
def test_an_interpreter_that_is_missing(place: Site, line: str, missing: str) -> None:
    place.plugin("other", f"{line}\n")
    finding = find_one(examine(place), "plugin other cannot run")
    assert finding.what.endswith(f"{missing} is missing")
    assert finding.run == f"command -v {quote(missing)}"


def test_line_ends_that_hide_the_interpreter(place: Site) -> None:
    place.plugin("other", "#!/bin/sh\r\necho\r\n")
    finding = find_one(examine(place), "CRLF")
    assert finding.run == f"sed -i 's/\\r$//' {place.plugins}/other/run"
    assert finding.run is not None
    subprocess.run(["sh", "-c", finding.run], check=True)
    assert [f.what for f in examine(place)] == ["no gateway is running"]


def test_a_plugin_whose_init_fails_and_the_jobs_that_wait_for_it(place: Site) -> None:
    place.plugin("late", "exit 1", commands=("init", "poll"))
    with run_with_socket(place) as (site_run, asking):
        until(lambda: "failed" in site_run.gateway.unready.get("late", ""))
        site_run.put("late")
        found = examine(place, **asking)
    assert find_one(found, "plugin late is not ready").severity is ERROR
    waiting = find_one(found, "queued jobs of late: 1")
    assert "its init failed" in waiting.why


def test_sandboxes_that_the_kernel_does_not_hold(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restrict, "probe", lambda: Support(0, True))
    place.plugin("kind", OK, sandbox={"level": "best_effort"})
    place.plugin("strict", OK, sandbox={"level": "enforce"})
    with run_with_socket(place) as (_, asking):
        found = examine(place, **asking)
    assert "Landlock" in find_one(found, "the sandbox of plugin kind is enforced only in part").why
    # Its jobs do not stay queued, they fail.
    [refused] = [finding for finding in found if "strict" in finding.what]
    assert (refused.severity, refused.what) == (ERROR, "plugin strict does not run")
    assert "files (needs Landlock ABI 3" in refused.why


def test_refusal_of_the_running_gateway_ends_with_a_reload(place: Site) -> None:
    entrypoint = place.plugin("late", OK) / "run"
    entrypoint.chmod(0o600)
    with run_with_socket(place) as (site_run, asking):
        site_run.put("late")
        entrypoint.chmod(0o700)
        found = examine(place, **asking)
        finding = find_one(found, "the running gateway refuses plugin late")
        assert finding.severity is ERROR
        assert "is not executable" in finding.why
        assert finding.run == f"ductile system reload --config {place.folder}/config.yaml"
        waiting = find_one(found, "queued jobs of late: 1")
        assert waiting.why.startswith("the running gateway refuses the plugin: ")
        assert waiting.run == finding.run
        site_run.gateway.reload()
        assert examine(place, **asking) == []


def test_a_refusal_that_both_have_takes_a_reload_as_well(place: Site) -> None:
    entrypoint = place.plugin("late", OK) / "run"
    entrypoint.chmod(0o600)
    with run_with_socket(place) as (_, asking):
        finding = find_one(examine(place, **asking), "plugin late is refused")
    reload = f"ductile system reload --config {place.folder}/config.yaml"
    assert finding.run == f"chmod +x {entrypoint} && {reload}"


# The gateway


@contextmanager
def left_behind(site: Site) -> Iterator[tuple[int, int]]:
    """A gateway that is dead, and a process of it that still holds the lock."""
    script = (
        "import fcntl, os, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)\n"
        "fcntl.flock(fd, fcntl.LOCK_EX)\n"
        "os.write(fd, f'{os.getpid()}\\n'.encode())\n"
        "child = os.fork()\n"
        "if child: print(child, flush=True); os._exit(0)\n"
        "for n in (0, 1, 2): os.close(n)\n"
        "time.sleep(60)\n"
    )
    site.state.mkdir(mode=0o700)
    done = subprocess.run(
        [sys.executable, "-c", script, str(site.state / "ductile.lock")],
        capture_output=True,
        text=True,
        check=True,
    )
    child = int(done.stdout)
    try:
        yield int((site.state / "ductile.lock").read_text()), child
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_lock_whose_gateway_is_dead(place: Site) -> None:
    with left_behind(place) as (dead, child):
        finding = find_one(examine(place), "is dead")
    assert finding.severity is ERROR
    assert str(dead) in finding.what
    assert finding.run is not None
    assert re.fullmatch(rf"kill -9 (\d+ )*{child}( \d+)*", finding.run)


def test_a_gateway_that_does_not_answer(place: Site) -> None:
    with place.running() as site_run:
        finding = find_one(examine(place), "does not answer on its socket")
        assert site_run.run("echo")["status"] == "succeeded"
    assert f"pid {os.getpid()}" in finding.what
    assert finding.severity is ERROR
    assert finding.run == f"ductile system stop --config {place.folder / 'config.yaml'}"


def test_the_pid_in_the_lock_file_is_not_trusted(place: Site) -> None:
    with place.running():
        (place.state / "ductile.lock").write_text("1\n")
        finding = find_one(examine(place), "holds the lock and does not answer")
    assert finding.run == f"ps -o pid,lstart,cmd -p {os.getpid()}"


def test_a_gateway_that_has_not_read_the_files_again(place: Site) -> None:
    with run_with_socket(place) as (site_run, asking):
        place.settings["service"]["dedupe_ttl"] = "1h"
        finding = find_one(examine(place, **asking), "another configuration than the files")
        assert finding.run is not None
        assert finding.run.startswith("ductile system reload")
        site_run.gateway.reload()
        assert examine(place, **asking) == []


def test_a_gateway_of_the_version_before_the_upgrade(
    place: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run_with_socket(place) as (_, asking):
        ask = asking["ask"]

        def of_yesterday(target: str) -> Any:
            return ask(target) | ({"version": "0.0.1"} if target == "/healthz" else {})

        finding = find_one(examine(place, ask=of_yesterday), "runs version 0.0.1")
    assert ductile.__version__ in finding.what


def test_a_gateway_that_is_not_well(place: Site) -> None:
    with run_with_socket(place) as (_, asking):
        ask = asking["ask"]
        ill = {"status": "error"}
        found = examine(
            place, ask=lambda target: ask(target) | ill if "health" in target else ask(target)
        )
    assert find_one(found, "reports an error").severity is ERROR


@pytest.mark.parametrize(("ledger", "count"), [("other/state.db", 1), (None, 0)])
def test_node_that_shares_its_ledger_is_no_second_gateway(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ledger: str | None, count: int
) -> None:
    holder = LockHolder(os.getpid(), True)
    monkeypatch.setattr(process, "locked_directories", lambda: [tmp_path])
    monkeypatch.setattr(process, "find_holder", lambda directory: holder)
    with run_with_socket(site) as (_, asking):
        config_dir = asking["ask"]("/config/view")["config"]["config_dir"]
        running = {"state": {"path": ledger, "dir": "other"}, "config_dir": config_dir}
        found = examine(site, **asking, ask_at=lambda _: lambda _: {"config": running})
    assert sum("two gateways run with these files" in finding.what for finding in found) == count


@pytest.mark.parametrize(
    ("code", "problem", "run"),
    [
        ("ledger_full", "the disk is full", "df -h {state}"),
        ("ledger_moved", "it was moved", "ls -l {state}/state.db*"),
        ("ledger_broken", "it is unknown", "ductile system stop"),
    ],
)
def test_each_failing_part_of_a_gateway_has_its_own_advice(
    place: Site, code: str, problem: str, run: str
) -> None:
    part = {"part": "commit", "error": problem, "code": code, "critical": True}
    place.settings["dead_man"] = {"url": "https://monitor.example/secret"}
    late = {"part": "retention", "error": "slow", "code": "internal", "critical": False}
    unheard = {**late, "part": "outside monitor", "error": "HTTP 404"}
    with run_with_socket(place) as (_, asking):
        ask = asking["ask"]
        ill = {"status": "error", "failing": [part, late, unheard]}
        found = examine(
            place, ask=lambda target: ask(target) | ill if "health" in target else ask(target)
        )
    finding = find_one(found, "its commit fails; jobs cannot be accepted or settled")
    assert (finding.severity, finding.why) == (ERROR, problem)
    assert finding.run is not None
    assert finding.run.startswith(run.format(state=place.state))
    assert find_one(found, "its retention fails").severity is WARNING
    monitor = find_one(found, "its outside monitor fails; the monitor may report a dead gateway")
    assert f"({place.folder}/config.yaml:" in monitor.what
    assert " && ductile system reload" in str(monitor.run)


def test_parts_that_fail_with_the_ledger_have_its_advice(place: Site) -> None:
    full = {"part": "ledger", "error": "the disk is full", "code": "ledger_full", "critical": True}
    late = {"part": "retention", "error": "slow", "code": "internal", "critical": False}
    with run_with_socket(place) as (_, asking):
        ask, ill = asking["ask"], {"status": "error", "failing": [late, full]}
        found = examine(
            place, ask=lambda target: ask(target) | ill if "health" in target else ask(target)
        )
    assert find_one(found, "its retention fails").run == f"df -h {place.state}"


def test_a_gateway_that_answers_that_it_is_not_well(place: Site) -> None:
    """As over its socket: an answer of 503 is raised, with what it says."""
    with run_with_socket(place) as (_, asking):
        ask = asking["ask"]

        def ill(target: str) -> Any:
            if target != "/healthz":
                return ask(target)
            fields = ask(target) | {"status": "error"}
            raise LedgerError("the disk is gone", **fields)

        found = examine(place, ask=ill)
    assert find_one(found, "reports an error").why == "the disk is gone"
    assert not [finding for finding in found if "failed" in finding.what]


@pytest.mark.parametrize(("command", "seconds"), [("handle", 120), ("poll", 60), ("sync", 60)])
def test_job_of_a_plugin_that_is_gone_has_the_time_of_its_command(
    place: Site, command: str, seconds: int
) -> None:
    new = NewJob("gone", command, SubmittedBy.API)
    began = datetime.now(UTC)
    with place.opened() as site_run:
        policy, tx_config = ClaimPolicy(site_run.gateway.boot), site_run.gateway.compiled.tx_config
        site_run.gateway.ledger.write(
            lambda tx: store.enqueue_job(tx, new, tx_config, id="j", now=began)
        )
        site_run.gateway.ledger.write(lambda tx: claim.start_job(tx, policy, "j", began))

        def late(after: float) -> list[Finding]:
            now = began + timedelta(seconds=after)
            make_context = DoctorContext(place.write(), place.environ, now)
            try:
                return list(work.jobs(make_context))
            finally:
                make_context.close()

        assert late(seconds + work.GRACE - 1) == []
        assert "has exceeded its timeout" in late(seconds + work.GRACE + 1)[0].what


def test_a_clock_that_was_never_set(place: Site) -> None:
    early = datetime(1970, 1, 1, tzinfo=UTC)
    assert find_one(examine(place, now=early), "1970-01-01").severity is ERROR


def test_a_clock_that_was_set_back(place: Site) -> None:
    with place.opened():
        pass
    before = datetime.now(UTC) - timedelta(hours=1)
    # Several nodes compare themselves with the database: another node's clock may be the wrong one.
    what = (
        "which is in the future"
        if "url" not in str(place.settings.get("state"))
        else "and that of the database"
    )
    assert find_one(examine(place, now=before), what).severity is ERROR
    assert not [finding for finding in examine(place) if finding.topic == "clock"]


# What it says to run


def test_every_command_that_is_named_exists() -> None:
    folder = Path(doctor.__file__).parent
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    lines = re.findall(
        r'(?:command\(f?|_dead_deliveries\(context, "\w+", |LOCK_COMMAND = )"([a-z][^"{]*)', text
    )
    assert len(lines) > 15
    for line in lines:
        found: click.Command = root
        for word in line.split()[:2]:
            if isinstance(found, click.Group):
                next = found.get_command(click.Context(found), word)
                assert next is not None, line
                found = next
        flags = {flag for param in found.params for flag in param.opts}
        assert {word for word in line.split() if word.startswith("--")} <= flags, line


def test_command_without_a_gateway_is_not_to_be_killed(
    place: Site,
) -> None:
    lock = InstanceLock(place.state)
    lock.acquire()
    try:
        assert find_one(examine(place), "no gateway is running")
        assert not [f for f in examine(place) if "kill" in (f.run or "")]
    finally:
        lock.release()


def test_a_lock_of_ours_does_not_look_like_a_gateways(place: Site) -> None:
    place.state.mkdir(mode=0o700)
    (place.state / "ductile.lock").touch(0o600)
    descriptor = os.open(place.state / "ductile.lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        # It has not written its process id yet.
        finding = find_one(examine(place), "holds the lock and does not answer")
        assert not (finding.run or "").startswith(("kill", "ductile"))
    finally:
        os.close(descriptor)
