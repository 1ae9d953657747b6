"""When a plugin is started cold instead, and what survives the death of its parts."""

from __future__ import annotations

import ast
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from glob import glob
from pathlib import Path

import pytest

import ductile.runner
from ductile.model import Ending, Launch
from ductile.runner import cgroup, protocol
from ductile.runner.pool import RunnerPool
from ductile.runner.warm import slots as warm_slots
from ductile.runner.warm.preload import ColdOnly
from ductile.runner.warm.slots import WarmSlots
from ductile.runner.warm.zygote_pool import ZygotePool
from tests.runner.processes import Fifo
from tests.runner.warm.conftest import LINE, Zygotes
from tests.waiting import process_state, until

REFUSED = {
    "threads": "import _thread, time\n_thread.start_new_thread(time.sleep, (600,))",
    "leaves open": "import os\nfd = os.open('/etc/passwd', os.O_RDONLY)",
    "failed: ValueError: no": "raise ValueError('no')",
    "failed: SystemExit": "import sys; sys.exit(1)",
    "signals": "import signal\nsignal.signal(signal.SIGTERM, lambda *a: None)",
    "processes": "import subprocess\np = subprocess.Popen(['sleep', '600'])",
    "working directory": "import os\nos.chdir('/')",
    "ended while it was prepared": "import os\nos._exit(3)",
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_module_that_a_fork_cannot_copy_is_refused(zygotes: Zygotes, tmp_path, reason) -> None:
    (tmp_path / "loaded.py").write_text(REFUSED[reason])
    with pytest.raises(ColdOnly, match=reason):
        zygotes.start(zygotes.script("print(1)"), "loaded")


def test_imports_that_take_too_long_are_refused(zygotes: Zygotes, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ductile.runner.warm.zygote_pool.IMPORT_SECONDS", 1.0)
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(600)")
    with pytest.raises(ColdOnly, match="more than 1 s"):
        zygotes.start(zygotes.script("print(1)"), "slow")


def test_a_changed_first_line_is_refused(zygotes: Zygotes) -> None:
    path = zygotes.script("print(1)")
    Path(path).write_text("#!/bin/sh\necho 1\n")
    with pytest.raises(ColdOnly, match="first line"):
        zygotes.start(path)


def test_a_user_without_privileges_has_warm_starts(zygotes: Zygotes) -> None:
    """Only root may read what a process without inspection has in /proc."""
    user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3")
    source = str(Path(ductile.runner.__file__).parents[2])
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root, to start a process of another user")
    check = f"import sys; sys.path.insert(0, {source!r}); import ductile.runner.slot"
    if subprocess.run((*user, "-c", check), capture_output=True, check=False).returncode:
        pytest.skip("needs a Python and sources that every user can read")
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        path = Path(folder, "plugin.py")
        path.write_text(f"{LINE}\nimport os\nprint(os.getuid())\n")
        path.chmod(0o755)
        zygote = zygotes.start(str(path), command=user)
        slot = zygote.fork_slot()
        assert slot is not None
        assert slot.run(zygotes.launch(str(path))).stdout == b"65534\n"


def test_a_missing_interpreter_is_an_error(zygotes: Zygotes) -> None:
    with pytest.raises(OSError, match="No such file"):
        zygotes.start(zygotes.script("print(1)"), command=("/nonexistent/python",))


@pytest.mark.parametrize("changed", ["plugin.py", "own.py"])
def test_a_changed_file_is_noticed_before_the_next_job(zygotes: Zygotes, tmp_path, changed) -> None:
    (tmp_path / "own.py").write_text("X = 1\n")
    path = zygotes.script("import own; print(own.X)")
    zygote = zygotes.start(path, "own")
    slot = zygote.fork_slot()
    assert slot is not None
    assert slot.run(zygotes.launch(path)).stdout == b"1\n"
    file = tmp_path / changed
    file.write_text(file.read_text().replace("X = 1", "X = 22").replace("own.X", "own.X + 0"))
    refused = slot.run(zygotes.launch(path))
    assert refused.ending is Ending.NOT_SPAWNED
    assert changed in zygote.refusal
    assert zygote.fork_slot() is None


def test_strict_mode_compares_the_stat_of_the_file(zygotes: Zygotes) -> None:
    path = zygotes.script("print(1)")
    slot = zygotes.slot(path)
    stat = protocol.encode_stat(os.stat(path))
    launch = zygotes.launch(path)
    right = Launch(launch.argv, launch.env, b"", 60.0, stat=stat)
    assert slot.run(right).stdout == b"1\n"
    wrong = Launch(launch.argv, launch.env, b"", 60.0, stat=b"another")
    outcome = slot.run(wrong)
    assert (outcome.ending, "has changed" in (outcome.reason or "")) == (Ending.NOT_SPAWNED, True)


def test_another_environment_is_not_started_warm(zygotes: Zygotes) -> None:
    path = zygotes.script("print(1)")
    zygote = zygotes.start(path)
    slot = zygote.fork_slot()
    assert slot is not None
    env = {**zygotes.plugins.env, "MORE": "1"}
    assert slot.run(zygotes.launch(path, env=env)).ending is Ending.NOT_SPAWNED
    assert "environment of its interpreter (MORE)" in zygote.refusal


def test_a_wrapper_that_changes_the_environment_is_reported_once(
    slots: WarmSlots, zygotes: Zygotes, tmp_path
) -> None:
    wrapper = tmp_path / "wrapper"
    wrapper.write_text(f'#!/bin/sh\nPATH="/shims:$PATH" exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    path = zygotes.script("print(1)")
    warm = zygotes.warm(path, command=(str(wrapper),))
    ready(slots, warm)
    slot = slots.fork(warm)
    assert slot is not None
    assert slot.run(zygotes.launch(path)).ending is Ending.NOT_SPAWNED
    slots.give_back(slot)
    assert not slots.is_ready(warm)
    assert "environment of its interpreter (PATH" in slots.report(warm).reason
    assert [name for name, _ in slots.test_events][-1] == "warm.refused"
    slots.test_clock.now = warm_slots.LOST_RETRY_SECONDS
    ready(slots, warm)


def test_each_warm_job_has_its_own_traceparent(zygotes: Zygotes) -> None:
    path = zygotes.script("import os; print(os.environ.get('TRACEPARENT'))")
    slot = zygotes.slot(path)
    for header in (b"00-a-1-01", b"00-a-2-01"):
        launch = replace(zygotes.launch(path), traceparent=header)
        assert slot.run(launch).stdout == header + b"\n"
    assert slot.run(zygotes.launch(path)).stdout == b"None\n"


def test_a_zygote_that_ends_spares_other_children(zygotes: Zygotes) -> None:
    # As in a gateway, which runs programs for secrets.
    zygotes.pool.owns_all_children = True
    zygote = zygotes.start(zygotes.script("print(1)"))
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        zygote.stop()
        assert child.poll() is None
        child.kill()


def test_a_job_survives_its_zygote(zygotes: Zygotes, start, fifo: Fifo, tmp_path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    path = zygotes.script(
        f"import os\nprint(os.getpid(), file=open({fifo.path!r}, 'w'))\n"
        f"open({str(go)!r}).read()\nprint('done')\n"
    )
    zygote = zygotes.start(path)
    slot = zygote.fork_slot()
    assert slot is not None
    running = start(slot, zygotes.launch(path))
    fifo.number()
    os.kill(zygote.pid, signal.SIGKILL)
    until(lambda: not zygote.is_alive)
    assert zygote.fork_slot() is None
    assert zygote.is_broken
    go.write_text("")
    assert running.result().stdout == b"done\n"


def test_a_killed_slot_loses_its_job_and_leaves_no_process(zygotes: Zygotes, start, fifo) -> None:
    path = zygotes.script(
        "import os, time\n"
        "if not os.fork(): os.setsid()\n"
        f"print(os.getpid(), file=open({fifo.path!r}, 'w'))\ntime.sleep(600)\n"
    )
    zygote = zygotes.start(path)
    slot = zygote.fork_slot()
    assert slot is not None
    running = start(slot, zygotes.launch(path))
    pids = [fifo.number(), fifo.number()]
    os.kill(slot.pid, signal.SIGKILL)
    assert running.result().ending is Ending.LOST
    assert [process_state(pid) for pid in pids] == ["", ""]
    assert slot.pid, "the zygote has replaced it"


def test_a_killed_zygote_and_slot_leave_no_process(zygotes: Zygotes, start, fifo) -> None:
    path = zygotes.script(
        f"import os, time\nprint(os.getpid(), file=open({fifo.path!r}, 'w'))\ntime.sleep(600)\n"
    )
    zygote = zygotes.start(path)
    slot = zygote.fork_slot()
    assert slot is not None
    running = start(slot, zygotes.launch(path))
    pid = fifo.number()
    os.kill(zygote.pid, signal.SIGKILL)
    os.kill(slot.pid, signal.SIGKILL)
    assert running.result().ending is Ending.LOST
    assert process_state(pid) == ""


SLOW_MODULE = """
import os, time
print(os.getpid(), file=open("{fifo}", "w"))
time.sleep(3600)
"""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def slots(pool, zygotes: Zygotes):
    clock = Clock()
    events: list[tuple[str, dict[str, object]]] = []
    made = WarmSlots(pool, lambda name, details: events.append((name, details)), clock)
    made.test_clock, made.test_events = clock, events  # type: ignore[attr-defined]
    yield made
    made.stop()


def ready(slots: WarmSlots, warm) -> None:
    until(lambda: slots.is_ready(warm))


def test_stop_does_not_wait_for_an_import(
    slots: WarmSlots, zygotes: Zygotes, fifo: Fifo, monkeypatch
) -> None:
    monkeypatch.setattr("ductile.runner.warm.zygote_pool.IMPORT_SECONDS", 3600.0)
    zygotes.script(SLOW_MODULE.format(fifo=fifo.path), "slow_module.py")
    assert not slots.is_ready(zygotes.warm(zygotes.script("pass"), "slow_module"))
    importing = fifo.number()
    slots.stop()
    assert process_state(importing) == ""
    assert slots.test_events == []


def test_slots_and_zygotes_end_when_they_are_idle(slots: WarmSlots, zygotes: Zygotes) -> None:
    warm = zygotes.warm(zygotes.script("print(1)"))
    assert slots.processes() == set()
    ready(slots, warm)
    slot = slots.fork(warm)
    assert slot is not None
    slots.give_back(slot)
    assert slots.take(warm) is slot
    slots.give_back(slot)
    assert len(slots.processes()) == 2
    slots.test_clock.now = warm_slots.SLOT_IDLE_SECONDS
    slots.tick()
    assert len(slots.processes()) == 1
    slots.test_clock.now = warm_slots.SLOT_IDLE_SECONDS + warm_slots.ZYGOTE_IDLE_SECONDS
    until(lambda: slots.processes() == set())
    until(lambda: zygotes.plugins.alive() == [])


def test_the_least_recently_used_zygote_makes_room(slots, zygotes: Zygotes, monkeypatch) -> None:
    monkeypatch.setattr(warm_slots, "MAX_ZYGOTES", 2)
    warms = [zygotes.warm(zygotes.script("print(1)", f"p{i}.py")) for i in range(3)]
    ready(slots, warms[0])
    slots.test_clock.now = 1.0
    ready(slots, warms[1])
    assert not slots.is_ready(warms[2])
    until(lambda: "in use" in slots.report(warms[2]).reason)
    slots.test_clock.now = 1.0 + warm_slots.IN_USE_SECONDS
    ready(slots, warms[2])
    assert "no job has run" in slots.report(warms[0]).reason
    assert slots.report(warms[1]).is_warm


def test_plugin_that_cannot_be_warm_is_reported_and_tried_again(
    slots: WarmSlots, zygotes: Zygotes, tmp_path
) -> None:
    (tmp_path / "later.py").write_text("1 / 0")
    warm = zygotes.warm(zygotes.script("print(1)"), "later")
    assert not slots.is_ready(warm)
    until(lambda: "ZeroDivisionError" in slots.report(warm).reason)
    until(lambda: [name for name, _ in slots.test_events] == ["warm.refused"])
    (tmp_path / "later.py").write_text("X = 100")
    slots.test_clock.now = warm_slots.RETRY_SECONDS + 1
    ready(slots, warm)
    assert slots.report(warm).memory_kib > 1000


def test_a_killed_zygote_is_replaced(slots: WarmSlots, zygotes: Zygotes) -> None:
    warm = zygotes.warm(zygotes.script("print(1)"))
    ready(slots, warm)
    os.kill(slots.report(warm).pid, signal.SIGKILL)
    until(lambda: not slots.is_ready(warm))
    assert "lost" in slots.report(warm).reason
    slots.test_clock.now = warm_slots.LOST_RETRY_SECONDS
    ready(slots, warm)


def modules_of_zygotes() -> list[Path]:
    folder = Path(ductile.runner.__file__).parent
    loaded = (
        "supervisor slot plugin_process channel protocol reaper isolation started_flags __init__"
    )
    own = "program zygote preload job __init__"
    files = [folder / f"{name}.py" for name in loaded.split()]
    files += [folder / "warm" / f"{name}.py" for name in own.split()]
    return [*files, *(folder / "sandbox").glob("*.py")]


@pytest.mark.parametrize("file", modules_of_zygotes(), ids=lambda file: file.stem)
def test_modules_of_a_zygote_use_nothing_newer_than_python_3_9(file: Path) -> None:
    tree = ast.parse(file.read_text(), str(file), feature_version=(3, 9))
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    words = {node.arg for node in ast.walk(tree) if isinstance(node, ast.keyword)}
    assert names.isdisjoint({"pairwise", "batched", "bit_count", "StrEnum", "UTC"})
    assert words.isdisjoint({"strict", "slots", "kw_only"})


def find_python_3_9() -> str | None:
    # A shim of pyenv is on the path for versions that it does not start.
    found = glob(str(Path.home() / ".pyenv/versions/3.9.*/bin/python"))
    on_path = shutil.which("python3.9")
    if on_path is not None and "shims" not in on_path:
        found.append(on_path)
    return found[0] if found else None


@pytest.mark.skipif(find_python_3_9() is None, reason="needs python3.9")
def test_filters_of_a_confined_zygote_are_built_by_python_3_9() -> None:
    text = """
from ductile.runner.sandbox import seccomp
for machine in ("x86_64", "aarch64"):
    for network in ("none", "ports", "all"):
        assert seccomp.build_filter(machine, network)
"""
    source = Path(ductile.__file__).parents[1]
    python = find_python_3_9()
    assert python is not None
    subprocess.run([python, "-c", text], check=True, env={"PYTHONPATH": str(source)})


Waiting = tuple[str, Callable[[], object]]


@pytest.fixture
def waiting(zygotes: Zygotes, fifo: Fifo, tmp_path: Path) -> Iterator[Waiting]:
    """A plugin that reports that it runs and then waits, and what lets one of its jobs continue."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    # For reading as well: a job that was killed does not keep the test waiting.
    with gate.open("r+b", buffering=0) as opened:
        report = f"print('up', file=open({fifo.path!r}, 'w'))\nopen({str(gate)!r}).readline()"
        yield zygotes.script(report, "waiting.py"), lambda: opened.write(b"continue\n")


@pytest.mark.parametrize("is_killed", [False, True])
def test_end_of_a_zygote_leaves_the_jobs_of_others_alone(
    zygotes: Zygotes, start, fifo: Fifo, waiting: Waiting, is_killed: bool
) -> None:
    other, release = waiting
    ended = zygotes.start(path := zygotes.script("pass", "ended.py"))
    slot = ended.fork_slot()
    assert slot is not None
    assert slot.run(zygotes.launch(path)).exit_code == 0
    living = zygotes.start(other)
    busy = living.fork_slot()
    assert busy is not None
    running = start(busy, zygotes.launch(other))
    assert fifo.line() == "up"
    if is_killed:
        os.kill(ended.pid, signal.SIGKILL)
        # This notices the death.
        assert ended.fork_slot() is None
    else:
        ended.stop()
    release()
    outcome = running.result()
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
    assert living.is_alive


def test_death_of_a_zygote_and_of_one_slot_leaves_the_other_slots_alone(
    zygotes: Zygotes, start, fifo: Fifo, waiting: Waiting
) -> None:
    path, release = waiting
    zygote = zygotes.start(path)
    slots = [zygote.fork_slot() for _ in range(2)]
    assert slots[0] is not None
    assert slots[1] is not None
    running = [start(slot, zygotes.launch(path)) for slot in slots]
    assert [fifo.line(), fifo.line()] == ["up", "up"]
    os.kill(zygote.pid, signal.SIGKILL)
    os.kill(slots[0].pid, signal.SIGKILL)
    assert running[0].result().ending is Ending.LOST
    release()
    outcome = running[1].result()
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome


STARTER = """
import sys
from ductile.model import WarmStart
from ductile.runner.pool import RunnerPool
from ductile.runner.warm.zygote_pool import ZygotePool
path, line = sys.argv[1:]
env = {"PATH": "/usr/bin:/bin"}
warm = WarmStart("p", path, (sys.executable,), path, line, ("slow_module",), env)
ZygotePool(RunnerPool(0), warm).start()
"""


def test_zygote_that_imports_ends_with_the_gateway(zygotes: Zygotes, fifo: Fifo) -> None:
    """It holds the gateway's lock, and an import may hang."""
    zygotes.script(SLOW_MODULE.format(fifo=fifo.path), "slow_module.py")
    starter = [sys.executable, "-c", STARTER, zygotes.script("pass"), LINE]
    with subprocess.Popen(starter) as gateway:
        importing = fifo.number()
        gateway.kill()
    # It may have become a child of this process, which does not reap it.
    until(lambda: process_state(importing) in ("", "Z"))


@pytest.mark.skipif(cgroup.find_parent() is None, reason="there is no writable cgroup v2")
def test_death_of_the_runner_leaves_warm_jobs_alone(
    zygotes: Zygotes, start_on, fifo: Fifo, waiting: Waiting
) -> None:
    path, release = waiting
    pool = RunnerPool(1, cgroup_name=f"ductile-test-{os.getpid()}")
    pool.start()
    zygote = ZygotePool(pool, zygotes.warm(path))
    try:
        zygote.start()
        slot = zygote.fork_slot()
        assert slot is not None
        running = start_on(slot, zygotes.launch(path))
        assert fifo.line() == "up"
        os.kill(pool.pid, signal.SIGKILL)
        # Its loss is noticed, and another runner started.
        program = zygotes.plugins.shell("true")
        outcomes = [pool.slot(0).run(zygotes.launch(program)).ending for _ in range(2)]
        assert outcomes[-1] is Ending.EXITED
        release()
        outcome = running.result()
        assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0), outcome
    finally:
        zygote.stop()
        pool.stop()


def test_a_job_that_kills_its_zygote_and_slot_leaves_no_process(
    zygotes: Zygotes, start, fifo: Fifo
) -> None:
    # As in a gateway: every child that it does not know was left by a plugin.
    zygotes.pool.owns_all_children = True
    path = zygotes.script(
        "import os, time\n"
        "slot = os.getppid()\n"
        "zygote = int(open(f'/proc/{slot}/stat').read().rpartition(')')[2].split()[1])\n"
        "if os.fork(): time.sleep(600)\n"
        "os.setsid()\n"
        "if os.fork(): os._exit(0)\n"
        f"print(os.getpid(), file=open({fifo.path!r}, 'w'))\n"
        "kill = f'kill -9 {zygote} {slot}; exec sleep 600'\n"
        "os.execve('/bin/sh', ['sh', '-c', kill], {})\n"
    )
    running = start(zygotes.slot(path), zygotes.launch(path))
    escaped = fifo.number()
    assert running.result().ending is Ending.LOST
    assert process_state(escaped) == ""
