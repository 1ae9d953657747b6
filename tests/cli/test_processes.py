"""Real processes: commands with a running gateway, signals, pipes, the demo."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import signal
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from ductile.cli import in_process, main
from ductile.cli.client import GatewayClient
from tests.cli.conftest import HELLO
from tests.cli.runner import COMMAND, CliRunner, Result, read_until, stop
from tests.waiting import WAIT_LIMIT, process_state, until

READS = (
    ("job", "list"),
    ("job", "logs"),
    ("logs", "hello"),
    ("queue",),
    ("plugin", "list"),
    ("pipeline", "list"),
    ("system", "breaker", "hello"),
)


@pytest.fixture
def slow(cli: CliRunner) -> CliRunner:
    """A configuration with a plugin that writes to a pipe when it runs, and then sleeps."""
    os.mkfifo(cli.root / "up")
    cli.plugin("slow", f"echo up > {cli.root}/up\nexec sleep 60")
    return cli


def wait_until_running(cli: CliRunner) -> None:
    with (cli.root / "up").open() as pipe:
        assert pipe.read() == "up\n"


def test_reads_print_the_same_with_and_without_a_gateway(cli: CliRunner) -> None:
    (cli.root / "plugins/refused").mkdir()
    cli.write("plugins/refused/manifest.yaml", "name: refused\n")

    def everything(job_id: str) -> list[Result]:
        lines = (*READS, ("job", "inspect", job_id), ("job", "why", job_id))
        return [cli(*line, *form) for line in lines for form in ((), ("--json",))]

    with cli.gateway():
        job = cli("run", "hello", "--json").json
        assert cli("run", "bad").code == 1
        status = cli("system", "status", "--json").json
        running = everything(job["job_id"])
    without_gateway = everything(job["job_id"])
    assert [(result.code, result.out) for result in running] == [
        (result.code, result.out) for result in without_gateway
    ]
    assert {result.code for result in without_gateway} == {0}
    page = cli("system", "status", "--json").json
    assert (status["running_gateway"], page["running_gateway"]) == (True, False)
    assert status.keys() == page.keys()
    assert _stable_part(status) == _stable_part(page)


def _stable_part(page: dict[str, Any]) -> list[Any]:
    rows = [
        {**row, "health": row["health"] and row["health"]["healthy"]} for row in page["plugins"]
    ]
    return [rows, page["queue_depth"], page["version"], page["state_dir"], page["workers"]]


def test_run_prints_the_same_with_and_without_a_gateway(cli: CliRunner) -> None:
    def shapes() -> list[Any]:
        people = [cli("run", name).out.splitlines() for name in ("hello", "bad")]
        first = [lines[0].split(" in ")[0] for lines in people]
        programs = [cli("run", name, "--json") for name in ("hello", "bad")]
        kept = ("status", "attempt", "submitted_by", "result", "last_error", "deduplicated")
        result = [(done.code, [done.json[key] for key in kept]) for done in programs]
        return [first, [len(lines) for lines in people], result, [d.json.keys() for d in programs]]

    without_gateway = shapes()
    with cli.gateway():
        assert shapes() == without_gateway


def test_a_running_gateway_runs_the_jobs_of_commands(cli: CliRunner) -> None:
    with cli.gateway() as gateway:
        queued = cli.process("run", "hello", "--async", "--json")
        assert queued.code == 0
        done = cli.process("run", "hello", "--payload", "-", "-v", input='{"a": 1}')
        assert done.code == 0
        assert f"using the gateway at {cli.state}/ductile.sock" in done.err
        assert "running for" in cli("status").out
        dry = cli("run", "hello", "--dry-run", "--json").json
        assert dry["command"] == "poll"
        assert len(cli("job", "list", "--json").json["jobs"]) == 2
        assert cli("run", "nope", "--json").json["code"] == "usage"
        assert cli("job", "inspect", "nope", "--json").json["code"] == "not_found"
        assert cli("start", "--dry-run", "--json").json["locked_by"] == gateway.pid


def test_a_second_gateway_in_a_state_directory_is_refused(cli: CliRunner) -> None:
    with cli.gateway() as gateway:
        second = cli.process("system", "start")
        assert second.code == 1
        assert f"another gateway (pid {gateway.pid}) uses" in second.err
        assert stop(gateway, signal.SIGINT) == 0
    assert not (cli.state / "ductile.sock").exists()


def test_a_start_waits_for_a_command_that_holds_the_lock(cli: CliRunner) -> None:
    go = cli.root / "go"
    cli.plugin("slow", f'while [ ! -e {go} ]; do sleep 0.02; done; echo \'{{"status":"ok"}}\'')
    without_gateway = cli.start("plugin", "run", "slow")
    lock = cli.state / "ductile.lock"
    until(lambda: lock.exists() and lock.read_text() == f"{without_gateway.pid} command\n")
    starting = cli.start("system", "start")
    try:
        until(lambda: starting.poll() is not None or has_open(starting.pid, lock))
        go.touch()
        read_until(starting, '"message":"ready"')
        assert without_gateway.wait(WAIT_LIMIT) == 0
        assert lock.read_text() == f"{starting.pid}\n"
    finally:
        stop(starting)
        stop(without_gateway)


def has_open(pid: int, path: Path) -> bool:
    # Not `Path.resolve`: a descriptor may be closed meanwhile, and the process may end.
    folder = f"/proc/{pid}/fd"
    try:
        return any(os.path.realpath(f"{folder}/{fd}") == str(path) for fd in os.listdir(folder))
    except FileNotFoundError:
        return False


def test_a_new_plugin_needs_a_reload(
    cli: CliRunner,
) -> None:
    with cli.gateway():
        cli.plugin("newone", HELLO)
        unseen = cli("plugin", "run", "newone")
        assert unseen.code == 2
        assert "has not loaded plugin newone; run: ductile system reload" in unseen.err
        listed = cli("plugin", "list", "--json")
        assert (
            listed.err == "the running gateway has not loaded: newone; run: ductile system reload\n"
        )
        assert "newone" not in {row["name"] for row in listed.json["plugins"]}
        assert "unknown plugin 'newtwo'" in cli("plugin", "run", "newtwo").err
        assert cli("system", "reload").code == 0
        assert cli("plugin", "run", "newone").code == 0
        assert cli("plugin", "list").err == ""
        cli.plugin("another", HELLO)
        cli.write("config.yaml", "servce: {}\nstate: {path: ./data/state.db}\n")
        assert "unknown plugin 'another'" in cli("plugin", "run", "another").err


def test_an_invalid_configuration_does_not_start(cli: CliRunner) -> None:
    cli.write("config.yaml", "servce: {}\n")
    done = cli.process("system", "start", "--json")
    assert done.code == 78
    assert done.json["code"] == "config_invalid"
    assert not cli.state.exists()


def test_a_broken_seal_does_not_hide_a_running_gateway(cli: CliRunner) -> None:
    cli.write("config.yaml", "include: [tokens.yaml]\nstate: {path: ./data/state.db}\n")
    cli.write("tokens.yaml", "tokens: [{name: ci, key: 0123456789abcdef, scopes: []}]\n")
    assert cli("config", "lock").code == 0
    with cli.gateway():
        cli.write("tokens.yaml", "tokens: []\n")
        assert cli("system", "status").code == 0
    assert cli("system", "status").code == 78


NEEDS_A_SECRET = """
state: {path: ./data/state.db}
plugins: {echo: {config: {key: "${ONLY_ITS_SERVICE_HAS_IT}"}}}
"""


def test_commands_reach_a_gateway_without_its_environment(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.write("config.yaml", NEEDS_A_SECRET)
    lines = ("system status", "job list", "queue list", "system backup")
    with monkeypatch.context() as service:
        service.setenv("ONLY_ITS_SERVICE_HAS_IT", "some secret of it")
        with cli.gateway():
            service.delenv("ONLY_ITS_SERVICE_HAS_IT")
            assert {line: cli(*line.split()).code for line in lines} == dict.fromkeys(lines, 0)
    assert {line: cli(*line.split()).code for line in lines} == dict.fromkeys(lines, 78)


def test_an_invalid_section_does_not_hide_a_running_gateway(cli: CliRunner) -> None:
    with cli.gateway():
        cli.write("config.yaml", "state: {path: ./data/state.db}\nservce: {}\n")
        assert cli("job", "list").code == 0
        reloaded = cli("system", "reload")
    assert (reloaded.code, "servce" in reloaded.err) == (78, True)


def test_an_invalid_state_path_is_an_error(cli: CliRunner) -> None:
    with cli.gateway():
        for wrong in ("state: {path: []}", "sate: {path: ./data/state.db}"):
            cli.write("config.yaml", f"{wrong}\n")
            assert cli("job", "list").code == 78


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_queues_its_job_again(
    slow: CliRunner, how: signal.Signals, code: int
) -> None:
    process = slow.start("plugin", "run", "slow")
    wait_until_running(slow)
    process.send_signal(how)
    _, err = process.communicate(timeout=WAIT_LIMIT)
    assert process.returncode == code
    assert "Traceback" not in err
    (row,) = slow("job", "list", "--json").json["jobs"]
    assert (row["status"], row["attempt"], row["max_attempts"]) == ("queued", 2, 5)
    assert row["job_id"] in err
    assert processes_below(slow.root) == []


def test_a_run_that_is_interrupted_at_its_start_queues_its_job_again(
    slow: CliRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(ThreadPoolExecutor):
        def submit(self, work: Any, /, *arguments: Any, **more: Any) -> Any:
            submitted = super().submit(work, *arguments, **more)
            if arguments:
                wait_until_running(slow)
                raise KeyboardInterrupt
            return submitted

    monkeypatch.setattr(in_process, "ThreadPoolExecutor", Interrupted)
    assert slow("plugin", "run", "slow").code == 130
    (row,) = slow("job", "list", "--json").json["jobs"]
    assert (row["status"], row["attempt"], row["max_attempts"]) == ("queued", 2, 5)
    assert processes_below(slow.root) == []


def processes_below(root: Path) -> list[str]:
    """Return the command lines of processes that run plugins of this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if f"{root}/plugins".encode() in line:
            found.append(line.decode())
    return found


def test_interrupting_the_wait_does_not_cancel_the_job(slow: CliRunner) -> None:
    with slow.gateway():
        process = slow.start("plugin", "run", "slow")
        wait_until_running(slow)
        # The job may run before the client has read its id; then the client requests the job.
        until(lambda: 'route="/job/{job_id}"' in slow("api", "/metrics").out)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_LIMIT)
        assert process.returncode == 130
        (row,) = slow("job", "list", "--json").json["jobs"]
        assert row["status"] == "running"
        assert row["job_id"] in err


def test_the_wait_ends_when_the_gateway_stops(slow: CliRunner) -> None:
    with slow.gateway() as gateway:
        process = slow.start("plugin", "run", "slow", "--json")
        wait_until_running(slow)
        stop(gateway)
        out, _ = process.communicate(timeout=WAIT_LIMIT)
    assert process.returncode == 1
    answer = json.loads(out)
    # The gateway responds while it stops, or not at all.
    assert answer.get("code") == "not_running" or answer["status"] == "queued"


def test_concurrent_runs_both_succeed(cli: CliRunner) -> None:
    both = [cli.start("plugin", "run", "hello") for _ in range(2)]
    outs = [process.communicate(timeout=WAIT_LIMIT) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    listed = cli("job", "list", "--json").json["jobs"]
    assert [row["status"] for row in listed] == ["succeeded"] * 2


class TestDemo:
    @pytest.fixture
    def where(self, cli: CliRunner) -> Path:
        return cli.root / "demo"

    def test_the_demo_runs_and_its_suggestions_work(self, cli: CliRunner, where: Path) -> None:
        process = cli.start("system", "demo", "--dir", str(where))
        try:
            result = read_until(process, "Stop the gateway with Ctrl-C")
            assert re.search(r"beat \d", result)
            assert "°C" in result
            tries = [line for line in result.splitlines() if f"--config {where}" in line]
            assert len(tries) == 6
            for line in tries:
                words = shlex.split(line)
                assert words[:3] == [*COMMAND]
                assert main(words[3:]) == 0
            client = GatewayClient(where / "data/ductile.sock")
            until(lambda: client.get("/gateway/heartbeats")["agents"])
            until(lambda: client.get("/jobs?pipeline=order&status=succeeded")["jobs"])
            [job] = client.get("/jobs?pipeline=order&status=succeeded&limit=1")["jobs"]
            done = client.get(f"/job/{job['job_id']}")
            assert done["result"]["result"] == "the order is confirmed"
        finally:
            assert stop(process, signal.SIGINT) == 0
        assert (where / "plugins/heartbeat/run.sh").stat().st_mode & 0o777 == 0o700
        assert (where / "config.yaml").stat().st_mode & 0o777 == 0o600

    def test_the_demo_keeps_existing_files(self, cli: CliRunner, where: Path) -> None:
        dry = cli("system", "demo", "--dir", str(where), "--dry-run", "--json").json
        assert str(where / "config.yaml") in dry["would_write"]
        assert not where.exists()
        where.mkdir()
        (where / "config.yaml").write_text("servce: {}\n")
        assert cli("system", "demo", "--dir", str(where), "--json").code == 78
        assert [path.name for path in where.iterdir()] == ["config.yaml"]

    def test_the_wheel_contains_the_demo(self, tmp_path: Path) -> None:
        project = Path(__file__).parents[2].resolve()
        (wheel,) = WheelBuilder(str(project)).build(directory=str(tmp_path), versions=["standard"])
        names = set(zipfile.ZipFile(wheel).namelist())
        sources = project / "src" / "ductile" / "demo"
        wanted = {
            f"ductile/demo/{path.relative_to(sources)}"
            for path in sources.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        }
        assert wanted <= names


def test_a_signal_to_another_thread_stops_the_gateway(cli: CliRunner) -> None:
    with cli.gateway() as process:
        threads = {int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()}
        other = max(threads - {process.pid})
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0
        assert process.wait(WAIT_LIMIT) == 0


ESCAPES = """
runner=$(cut -d' ' -f4 /proc/$PPID/stat)
setsid env -i sh -c "sh -c 'echo \\$\\$ > {up}; kill -9 $PPID $runner; exec sleep 3600' & exit"
sleep 3600
"""


def test_plugin_that_kills_slot_and_runner_does_not_outlive_its_job(cli: CliRunner) -> None:
    os.mkfifo(cli.root / "up")
    cli.plugin("escapes", ESCAPES.format(up=cli.root / "up"))
    with cli.gateway():
        cli("run", "escapes", "--async", "--json")
        with (cli.root / "up").open() as pipe:
            escaped = int(pipe.read())
        until(lambda: process_state(escaped) == "")
        assert cli("run", "hello").code == 0


def test_a_command_without_a_gateway_leaves_no_process_behind(cli: CliRunner) -> None:
    os.mkfifo(cli.root / "up")
    cli.plugin("escapes", ESCAPES.format(up=cli.root / "up"))
    process = cli.start("run", "escapes")
    with (cli.root / "up").open() as pipe:
        escaped = int(pipe.read())
    process.communicate(timeout=WAIT_LIMIT)
    assert process_state(escaped) == ""
