from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

from ductile.model import Ending
from ductile.runner import reaper
from tests.runner.processes import BY_THEN
from tests.waiting import process_state

DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {last}
        print(os.getpid(), flush=True)
        {pipes}
        time.sleep(3600)
    os._exit(0)
os.wait()
time.sleep(0.1)
"""


def test_grandchild_with_open_pipes_does_not_hang_the_slot(run, plugins):
    outcome = run(plugins.shell("sleep 3600 & echo $!"))
    assert outcome.ending is Ending.EXITED
    assert process_state(int(outcome.stdout)) == ""


@pytest.mark.parametrize("pipes", ["", "[os.close(fd) for fd in (0, 1, 2)]"])
@pytest.mark.parametrize("last", ["", "os.setpgid(0, 0)", "signal.signal(15, signal.SIG_IGN)"])
def test_grandchild_that_left_group_and_session_does_not_survive(run, plugins, last, pipes):
    outcome = run(plugins.python(DAEMON.format(last=last, pipes=pipes)))
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0)
    assert process_state(int(outcome.stdout)) == ""


def test_a_grandchild_without_the_mark_does_not_survive(run, plugins):
    outcome = run(plugins.shell("env -i setsid sleep 3600 & echo $!; sleep 0.1"))
    assert process_state(int(outcome.stdout)) == ""


def test_a_stopped_grandchild_does_not_survive(run, plugins):
    outcome = run(plugins.shell("setsid sh -c 'kill -STOP $$' & echo $!; sleep 0.1"))
    assert process_state(int(outcome.stdout)) == ""


def test_grandchildren_do_not_survive_a_timeout(run, plugins):
    plugin = plugins.shell("setsid sleep 3600 & echo $!; sleep 3600")
    outcome = run(plugin, timeout=BY_THEN)
    assert outcome.ending is Ending.TIMED_OUT
    assert process_state(int(outcome.stdout)) == ""


def test_descendants_that_keep_forking_in_new_sessions_are_killed(run, plugins):
    outcome = run(
        plugins.python("""
for _ in range(4):
    if os.fork() == 0:
        while True:
            if os.fork():
                os._exit(0)
            os.setsid()
time.sleep(0.05)
""")
    )
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0)


def test_descendants_that_replace_killed_ones_are_killed(run, plugins):
    """Each process of the tree replaces its two children when they are killed."""
    outcome = run(
        plugins.python("""
def tend(depth):
    os.setsid()
    mine = set()
    while True:
        while depth and len(mine) < 2:
            pid = os.fork()
            if pid == 0:
                tend(depth - 1)
            mine.add(pid)
        if mine:
            mine.discard(os.wait()[0])
        else:
            time.sleep(3600)
if os.fork() == 0:
    tend(4)
time.sleep(0.3)
""")
    )
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, 0)


def test_orphans_that_end_while_the_job_runs_are_reaped(run, plugins):
    plugin = plugins.python("""
for _ in range(20):
    if os.fork() == 0:
        os.fork()
        os._exit(0)
    os.wait()
def zombies():
    found = 0
    for pid in open(f"/proc/{os.getppid()}/task/{os.getppid()}/children").read().split():
        try:
            found += ") Z " in open(f"/proc/{pid}/stat").read()
        except FileNotFoundError:
            pass
    return found
while zombies():
    time.sleep(0.05)
print("clean")
""")
    assert run(plugin).stdout == b"clean\n"


def test_a_slot_does_not_kill_the_job_of_another(pool, plugins):
    short = plugins.launch(plugins.shell("setsid sleep 3600 & echo short"))
    long = plugins.launch(plugins.shell("setsid sh -c 'sleep 1; echo long' & wait"))
    with ThreadPoolExecutor(1) as threads:
        waited = threads.submit(pool.slot(1).run, long)
        while not waited.done():
            assert pool.slot(0).run(short).stdout == b"short\n"
        assert waited.result().stdout == b"long\n"


def test_many_short_jobs_leak_no_descriptor_and_no_memory(pool, plugins):
    slot = pool.slot(0)
    launch = plugins.launch("/bin/true", request=b"x" * 2000)

    def resident():
        with open(f"/proc/{slot.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(100):
        slot.run(launch)
    descriptors, memory = len(os.listdir(f"/proc/{slot.pid}/fd")), resident()
    for _ in range(400):
        assert slot.run(launch).exit_code == 0
    assert len(os.listdir(f"/proc/{slot.pid}/fd")) == descriptors
    assert resident() - memory < 512 * 1024


@pytest.mark.skipif(not reaper._LISTS_CHILDREN, reason="this kernel does not list them")
def test_children_are_found_though_a_thread_ends_while_they_are_listed(monkeypatch):
    child = subprocess.Popen([shutil.which("sleep"), "60"])
    listdir, ended = os.listdir, [["0"]]
    monkeypatch.setattr(reaper.os, "listdir", lambda path: ended.pop() if ended else listdir(path))
    try:
        assert child.pid in reaper.children(os.getpid())
    finally:
        child.kill()
        child.wait()


def test_children_are_found_by_a_scan_where_the_kernel_does_not_list_them(monkeypatch):
    child = subprocess.Popen([shutil.which("sleep"), "60"])
    try:
        assert child.pid in reaper.children(os.getpid())
        monkeypatch.setattr(reaper, "_LISTS_CHILDREN", False)
        assert child.pid in reaper.children(os.getpid())
        assert reaper.children(child.pid) == []
    finally:
        child.kill()
        child.wait()
