"""What a plugin can reach of the gateway that runs it, and whether it can outlive its job."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from ductile.runner import cgroup, isolation
from ductile.runner.pool import RunnerPool
from tests.waiting import process_state

GATEWAY = """
import os, sys
from ductile.model import Launch
from ductile.runner import isolation, reaper
from ductile.runner.pool import RunnerPool
isolation.forbid_inspection()
plugin, name, owned, *bystander = sys.argv[1:]
if bystander:
    # Without our output, whose end the test waits for.
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    os.posix_spawn("/bin/sleep", bystander, {}, file_actions=null)
pool = RunnerPool(2, cgroup_name=name, **{owned: True})
pool.start()
env = {"PATH": os.environ["PATH"]}
print(pool.slot(0).run(Launch((plugin,), env, b"", 60.0)).ending.name, flush=True)
print(pool.slot(1).run(Launch(("/bin/echo", "ok"), env, b"", 60.0)).stdout, flush=True)
sys.stdin.readline()
pool.stop()
stats = {pid: open(f"/proc/{pid}/stat").read() for pid in reaper.children(os.getpid())}
print(*(pid for pid, stat in stats.items() if ") Z " not in stat), flush=True)
"""
ESCAPES = """
slot = os.getppid()
runner = int(open(f"/proc/{{slot}}/stat").read().rpartition(")")[2].split()[1])
if os.fork():
    time.sleep(3600)
os.setsid()
if os.fork():
    os._exit(0)
PROGRAM = '''
import os, signal, sys, time
for pid in map(int, sys.argv[1:3]):
    os.kill(pid, signal.SIGKILL)
while True:
    time.sleep(0.01)
'''
with open({fifo!r}, "w") as fifo:
    print(os.getpid(), file=fifo)
os.execve(sys.executable, [sys.executable, "-ISc", PROGRAM, {order}], {{}})
"""


class IsolatedGateway:
    def __init__(
        self,
        plugin: str,
        name: str = "",
        owned: str = "owns_all_children",
        bystander: tuple[str, ...] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", GATEWAY, plugin, name, owned, *bystander],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "GATEWAY_SECRET": "hunter2hunter2"},
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def cgroup_name():
    name = f"ductile-test-{uuid.uuid4().hex}"
    yield name
    group = cgroup.create(name)
    if group is not None:
        group.remove()


@pytest.mark.parametrize("order", ["str(slot), str(runner)", "str(runner), str(slot)"])
@pytest.mark.parametrize("owned", ["owns_all_children", "owns_children_after_loss"])
def test_plugin_that_kills_slot_and_runner_does_not_outlive_its_job(plugins, fifo, order, owned):
    plugin = plugins.python(ESCAPES.format(fifo=fifo.path, order=order))
    gateway = IsolatedGateway(plugin, owned=owned)
    escaped = fifo.number()
    assert gateway.line() == "LOST"
    assert process_state(escaped) == ""
    assert gateway.line() == "b'ok\\n'"
    assert gateway.process.communicate("\n")[0].strip() == ""


def test_a_child_that_was_there_before_the_runner_is_spared(plugins, fifo):
    plugin = plugins.python(ESCAPES.format(fifo=fifo.path, order="str(slot), str(runner)"))
    gateway = IsolatedGateway(plugin, bystander=("sleep", "3600"))
    fifo.number()
    assert gateway.line() == "LOST"
    gateway.line()
    # Asked while the gateway runs: the process that adopts the child afterwards may end it.
    [bystander] = map(int, gateway.process.communicate("\n")[0].split())
    with contextlib.suppress(ProcessLookupError):
        os.kill(bystander, signal.SIGKILL)


def test_plugin_cannot_read_the_gateway_environment(plugins):
    os.environ["GATEWAY_SECRET"] = "hunter2hunter2"
    try:
        pool = RunnerPool(1)
        pool.start()
    finally:
        del os.environ["GATEWAY_SECRET"]
    slot = plugins.shell("cat /proc/$PPID/environ; echo read")
    runner = plugins.shell("cat /proc/$(cut -d' ' -f4 /proc/$PPID/stat)/environ; echo read")
    try:
        for plugin in (slot, runner):
            shown = pool.slot(0).run(plugins.launch(plugin)).stdout
            assert shown.endswith(b"read\n")
            assert b"hunter2" not in shown
            assert b"PATH=" not in shown
    finally:
        pool.stop()


def test_a_plugin_is_killed_for_memory_before_the_gateway(run, plugins):
    before = int(Path("/proc/self/oom_score_adj").read_text())
    # The slot sets it when the process has run for a moment.
    plugin = plugins.shell(f"""
for i in $(seq 100); do
    [ "$(cat /proc/self/oom_score_adj)" -gt {before} ] && break
    sleep 0.01
done
cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj""")
    raised, slot = map(int, run(plugin).stdout.split())
    assert raised == min(before + 500, 1000)
    assert slot == before


PROBE = """
import ctypes, os, sys
from ductile.runner import isolation
isolation.forbid_inspection()
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
"""


def test_an_isolated_process_cannot_be_inspected():
    done = subprocess.run([sys.executable, "-c", PROBE], stdout=-1, text=True, check=True)
    assert done.stdout == "0\n"


needs_cgroup = pytest.mark.skipif(
    cgroup.find_parent() is None, reason="there is no writable cgroup v2"
)


@needs_cgroup
def test_a_plugin_runs_in_the_cgroup_of_the_gateway(plugins, fifo, cgroup_name):
    plugin = plugins.shell(f"cat /proc/self/cgroup > {fifo.path}; sleep 3600")
    gateway = IsolatedGateway(plugin, cgroup_name)
    lines = [fifo.line()]
    while not lines[-1].startswith("0::"):
        lines.append(fifo.line())
    assert lines[-1].endswith(f"/{cgroup_name}")
    gateway.kill()


@needs_cgroup
def test_next_gateway_ends_processes_in_the_cgroup_of_a_killed_one(cgroup_name):
    group = cgroup.create(cgroup_name)
    assert group is not None
    left = subprocess.Popen(["sleep", "3600"], start_new_session=True, env={})
    group.add(left.pid)
    again = cgroup.create(cgroup_name)
    assert again is not None
    assert left.wait() == -9
    again.remove()
    assert not os.path.exists(again.path)


@needs_cgroup
def test_cgroup_of_zygotes_is_created_next_to_that_of_the_runner(cgroup_name):
    own = cgroup.create(cgroup_name)
    warm = cgroup.create(f"{cgroup_name}{cgroup.OF_ZYGOTES}")
    assert own is not None
    assert warm is not None
    assert os.path.isdir(own.path)
    warm.remove()
    assert not os.path.isdir(warm.path)


@needs_cgroup
def test_an_empty_cgroup_that_was_removed_is_created_again(cgroup_name):
    group = cgroup.create(cgroup_name)
    assert group is not None
    group.remove()
    process = subprocess.Popen(["sleep", "3600"])
    group.add(process.pid)
    group.kill()
    assert process.wait() == -signal.SIGKILL


def test_prepared_child_has_its_own_group_signals_and_streams_only():
    requests, answers, errors = os.pipe(), os.pipe(), os.pipe()
    # As libffi keeps one: the code of its callbacks is in that file.
    library = _open_library()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    pid = os.fork()
    if pid == 0:
        try:
            streams = requests[0], answers[1], errors[1]
            kept = isolation.find_code_descriptors()
            isolation.make_child_preparation(isolation.handled_signals(), kept)(streams, None)
            seen = {
                "leads": os.getpgid(0) == os.getpid(),
                "default": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
                "blocked": len(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
                "fds": [fd for fd in range(256) if _is_open(fd)],
            }
            os.write(1, json.dumps(seen).encode())
        finally:
            os._exit(0)
    signal.signal(signal.SIGUSR1, before)
    os.waitpid(pid, 0)
    seen = json.loads(os.read(answers[0], 4096))
    kept = isolation.find_code_descriptors()
    for fd in (*requests, *answers, *errors, library):
        os.close(fd)
    assert library in kept
    assert seen == {"leads": True, "default": True, "blocked": 0, "fds": [0, 1, 2, *kept]}


def _open_library() -> int:
    """A descriptor of the file that has the code of the C library."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    return os.open(next(line.split()[-1] for line in maps if "/libc.so" in line), os.O_RDONLY)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True
