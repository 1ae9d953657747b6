"""Real processes: a gateway that runs, commands beside it, signals, pipes."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import signal
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hatchling.builders.wheel import WheelBuilder

from ductile.cli import main
from tests.cli.conftest import HELLO
from tests.cli.running import COMMAND, House, Result, end, read_until
from tests.waiting import WAIT_LIMIT, until

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
def slow(house: House) -> House:
    """A house with a plugin that says when it runs, through a pipe, and then takes its time."""
    os.mkfifo(house.root / "up")
    house.plugin("slow", f"echo up > {house.root}/up\nexec sleep 60")
    return house


def is_up(house: House) -> None:
    with (house.root / "up").open() as pipe:
        assert pipe.read() == "up\n"


def test_a_read_says_the_same_with_and_without_a_gateway(house: House) -> None:
    (house.root / "plugins/refused").mkdir()
    house.write("plugins/refused/manifest.yaml", "name: refused\n")

    def everything(job_id: str) -> list[Result]:
        lines = (*READS, ("job", "inspect", job_id), ("job", "why", job_id))
        return [house(*line, *form) for line in lines for form in ((), ("--json",))]

    with house.gateway():
        job = house("run", "hello", "--json").json
        assert house("run", "bad").code == 1
        status = house("system", "status", "--json").json
        running = everything(job["job_id"])
    alone = everything(job["job_id"])
    assert [(result.code, result.out) for result in running] == [
        (result.code, result.out) for result in alone
    ]
    assert {result.code for result in alone} == {0}
    page = house("system", "status", "--json").json
    assert (status["running_gateway"], page["running_gateway"]) == (True, False)
    assert status.keys() == page.keys()
    assert _lasting(status) == _lasting(page)


def _lasting(page: dict[str, Any]) -> list[Any]:
    rows = [
        {**row, "health": row["health"] and row["health"]["healthy"]} for row in page["plugins"]
    ]
    return [rows, page["queue_depth"], page["version"], page["state_dir"], page["workers"]]


def test_a_run_shows_the_same_with_and_without_a_gateway(house: House) -> None:
    def shapes() -> list[Any]:
        people = [house("run", name).out.splitlines() for name in ("hello", "bad")]
        first = [lines[0].split(" in ")[0] for lines in people]
        programs = [house("run", name, "--json") for name in ("hello", "bad")]
        kept = ("status", "attempt", "submitted_by", "result", "last_error", "deduplicated")
        told = [(done.code, [done.json[key] for key in kept]) for done in programs]
        return [first, [len(lines) for lines in people], told, [d.json.keys() for d in programs]]

    alone = shapes()
    with house.gateway():
        assert shapes() == alone


def test_a_gateway_runs_what_it_is_given(house: House) -> None:
    with house.gateway() as gateway:
        queued = house.process("run", "hello", "--async", "--json")
        assert queued.code == 0
        done = house.process("run", "hello", "--payload", "-", "-v", input='{"a": 1}')
        assert done.code == 0
        assert f"using the gateway at {house.state}/ductile.sock" in done.err
        assert "running for" in house("status").out
        dry = house("run", "hello", "--dry-run", "--json").json
        assert dry["command"] == "poll"
        assert len(house("job", "list", "--json").json["jobs"]) == 2
        assert house("run", "nope", "--json").json["code"] == "usage"
        assert house("job", "inspect", "nope", "--json").json["code"] == "not_found"
        assert house("start", "--dry-run", "--json").json["locked_by"] == gateway.pid


def test_one_gateway_a_state_directory(house: House) -> None:
    with house.gateway() as gateway:
        second = house.process("system", "start")
        assert second.code == 1
        assert f"another gateway (pid {gateway.pid}) uses" in second.err
        assert end(gateway, signal.SIGINT) == 0
    assert not (house.state / "ductile.sock").exists()


def test_a_start_waits_for_a_command_that_works_without_a_gateway(house: House) -> None:
    go = house.root / "go"
    house.plugin("slow", f'while [ ! -e {go} ]; do sleep 0.02; done; echo \'{{"status":"ok"}}\'')
    alone = house.start("plugin", "run", "slow")
    lock = house.state / "ductile.lock"
    until(lambda: lock.exists() and lock.read_text() == f"{alone.pid} command\n")
    starting = house.start("system", "start")
    try:
        until(lambda: starting.poll() is not None or has_open(starting.pid, lock))
        go.touch()
        read_until(starting, '"message":"ready"')
        assert alone.wait(WAIT_LIMIT) == 0
        assert lock.read_text() == f"{starting.pid}\n"
    finally:
        end(starting)
        end(alone)


def has_open(pid: int, path: Path) -> bool:
    links = Path(f"/proc/{pid}/fd")
    return any(link.resolve() == path for link in links.iterdir())


def test_a_plugin_that_came_since_the_gateway_looked_is_named_with_the_reload(
    house: House,
) -> None:
    with house.gateway():
        house.plugin("newone", HELLO)
        unseen = house("plugin", "run", "newone")
        assert unseen.code == 2
        assert "has not loaded plugin newone; run: ductile system reload" in unseen.err
        listed = house("plugin", "list", "--json")
        assert (
            listed.err == "the running gateway has not loaded: newone; run: ductile system reload\n"
        )
        assert "newone" not in {row["name"] for row in listed.json["plugins"]}
        assert "unknown plugin 'newtwo'" in house("plugin", "run", "newtwo").err
        assert house("system", "reload").code == 0
        assert house("plugin", "run", "newone").code == 0
        assert house("plugin", "list").err == ""
        house.plugin("another", HELLO)
        house.write("config.yaml", "servce: {}\nstate: {path: ./data/state.db}\n")
        assert "unknown plugin 'another'" in house("plugin", "run", "another").err


def test_a_wrong_configuration_does_not_start(house: House) -> None:
    house.write("config.yaml", "servce: {}\n")
    done = house.process("system", "start", "--json")
    assert done.code == 78
    assert done.json["code"] == "config_invalid"
    assert not house.state.exists()


def test_an_unsealed_file_does_not_hide_a_running_gateway(house: House) -> None:
    house.write("config.yaml", "include: [tokens.yaml]\nstate: {path: ./data/state.db}\n")
    house.write("tokens.yaml", "tokens: [{name: ci, key: 0123456789abcdef, scopes: []}]\n")
    assert house("config", "lock").code == 0
    with house.gateway():
        house.write("tokens.yaml", "tokens: []\n")
        assert house("system", "status").code == 0
    assert house("system", "status").code == 78


NEEDS_A_SECRET = """
state: {path: ./data/state.db}
plugins: {echo: {config: {key: "${ONLY_ITS_SERVICE_HAS_IT}"}}}
"""


@pytest.mark.parametrize(
    "line", [("system", "status"), ("job", "list"), ("queue", "list"), ("system", "backup")]
)
def test_a_shell_without_the_secrets_of_the_service_sees_the_gateway_that_runs(
    house: House, monkeypatch: pytest.MonkeyPatch, line: tuple[str, ...]
) -> None:
    house.write("config.yaml", NEEDS_A_SECRET)
    with monkeypatch.context() as service:
        service.setenv("ONLY_ITS_SERVICE_HAS_IT", "some secret of it")
        with house.gateway():
            service.delenv("ONLY_ITS_SERVICE_HAS_IT")
            assert house(*line).code == 0
    assert house(*line).code == 78


def test_a_slip_in_some_section_does_not_hide_a_running_gateway(house: House) -> None:
    with house.gateway():
        house.write("config.yaml", "state: {path: ./data/state.db}\nservce: {}\n")
        assert house("job", "list").code == 0
        reloaded = house("system", "reload")
    assert (reloaded.code, "servce" in reloaded.err) == (78, True)


@pytest.mark.parametrize("wrong", ["state: {path: []}", "sate: {path: ./data/state.db}"])
def test_where_the_state_is_is_not_guessed(house: House, wrong: str) -> None:
    with house.gateway():
        house.write("config.yaml", f"{wrong}\n")
        assert house("job", "list").code == 78


@pytest.mark.parametrize(("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_gives_its_job_back(slow: House, how: signal.Signals, code: int) -> None:
    process = slow.start("plugin", "run", "slow")
    is_up(slow)
    process.send_signal(how)
    _, err = process.communicate(timeout=WAIT_LIMIT)
    assert process.returncode == code
    assert "Traceback" not in err
    (row,) = slow("job", "list", "--json").json["jobs"]
    assert (row["status"], row["attempt"], row["max_attempts"]) == ("queued", 2, 5)
    assert row["job_id"] in err
    assert processes_below(slow.root) == []


def processes_below(root: Path) -> list[str]:
    """The command lines of what runs from this directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if f"{root}/plugins".encode() in line:
            found.append(line.decode())
    return found


def test_interrupting_the_wait_leaves_the_job_to_the_gateway(slow: House) -> None:
    with slow.gateway():
        process = slow.start("plugin", "run", "slow")
        is_up(slow)
        # The job may run before the answer that names it has been read; what follows asks for it.
        until(lambda: 'route="/job/{job_id}"' in slow("api", "/metrics").out)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_LIMIT)
        assert process.returncode == 130
        (row,) = slow("job", "list", "--json").json["jobs"]
        assert row["status"] == "running"
        assert row["job_id"] in err


def test_a_gateway_that_stops_is_not_waited_for(slow: House) -> None:
    with slow.gateway() as gateway:
        process = slow.start("plugin", "run", "slow", "--json")
        is_up(slow)
        end(gateway)
        out, _ = process.communicate(timeout=WAIT_LIMIT)
    assert process.returncode == 1
    answer = json.loads(out)
    # Told by the gateway on its way out, or by nobody any more.
    assert answer.get("code") == "not_running" or answer["status"] == "queued"


def test_two_runs_at_once_both_succeed(house: House) -> None:
    both = [house.start("plugin", "run", "hello") for _ in range(2)]
    outs = [process.communicate(timeout=WAIT_LIMIT) for process in both]
    assert [process.returncode for process in both] == [0, 0], outs
    listed = house("job", "list", "--json").json["jobs"]
    assert [row["status"] for row in listed] == ["succeeded"] * 2


class TestDemo:
    @pytest.fixture
    def where(self, house: House) -> Path:
        return house.root / "demo"

    def test_it_works_and_says_what_to_try(self, house: House, where: Path) -> None:
        process = house.start("system", "demo", "--dir", str(where))
        try:
            told = read_until(process, "Stop the gateway with Ctrl-C")
            assert re.search(r"beat \d", told)
            assert "°C" in told
            tries = [line for line in told.splitlines() if f"--config {where}" in line]
            assert len(tries) == 6
            for line in tries:
                words = shlex.split(line)
                assert words[:3] == [*COMMAND]
                assert main(words[3:]) == 0
        finally:
            assert end(process, signal.SIGINT) == 0
        assert (where / "plugins/heartbeat/run.sh").stat().st_mode & 0o777 == 0o700
        assert (where / "config.yaml").stat().st_mode & 0o777 == 0o600

    def test_what_is_there_is_kept(self, house: House, where: Path) -> None:
        dry = house("system", "demo", "--dir", str(where), "--dry-run", "--json").json
        assert str(where / "config.yaml") in dry["would_write"]
        assert not where.exists()
        where.mkdir()
        (where / "config.yaml").write_text("servce: {}\n")
        assert house("system", "demo", "--dir", str(where), "--json").code == 78
        assert [path.name for path in where.iterdir()] == ["config.yaml"]

    def test_its_files_are_packed(self, tmp_path: Path) -> None:
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


def test_a_signal_that_the_system_gives_to_another_thread_stops_the_gateway(house: House) -> None:
    with house.gateway() as process:
        threads = {int(path.name) for path in Path(f"/proc/{process.pid}/task").iterdir()}
        other = max(threads - {process.pid})
        assert ctypes.CDLL(None).tgkill(process.pid, other, signal.SIGTERM) == 0
        assert process.wait(WAIT_LIMIT) == 0
