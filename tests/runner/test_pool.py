from __future__ import annotations

import errno
import fcntl
import os
import resource
import select
import signal
import subprocess
import sys

import pytest

from ductile.model import Ending
from ductile.runner import pool as runner_pool
from ductile.runner import reaper, supervisor
from ductile.runner.client import SlotClient
from ductile.runner.pool import RunnerPool
from tests.runner.processes import BY_THEN, descriptors
from tests.waiting import WAIT_LIMIT, process_state, stop_process, until

OK = "echo ok"
HOSTILE = """trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP; sleep 3600' &
sh -c 'sleep 3600' &
echo $! > {fifo}
echo $$ > {fifo}
while :; do sleep 1; done
"""
GATEWAY = """
import os, sys, threading
from ductile.model import Launch
from ductile.runner.pool import RunnerPool
lock, marker, *plugins = sys.argv[1:]
lock = os.open(lock, os.O_RDWR)
import fcntl
fcntl.flock(lock, fcntl.LOCK_EX)
pool = RunnerPool(len(plugins) + 1, lock_fd=lock)
pool.start()
env = {"PATH": os.environ["PATH"], "DUCTILE_BOOT": marker + ":1"}
for index, plugin in enumerate(plugins):
    launch = Launch((plugin,), env, b"", 60.0)
    threading.Thread(target=pool.slot(index).run, args=(launch,), daemon=True).start()
print(pool.pid, *(pool.slot(index).pid for index in range(len(plugins) + 1)), flush=True)
sys.stdin.read()
"""


def works(pool, plugins):
    return all(
        pool.slot(n).run(plugins.launch(plugins.shell(OK))).stdout == b"ok\n" for n in (0, 1)
    )


@pytest.fixture
def hostile(plugins, fifo):
    """A plugin that writes two pids when it runs, and ignores signals."""
    return plugins.shell(HOSTILE.format(fifo=fifo.path))


class Gateway:
    """A process with a pool, which runs one job in each slot but the last."""

    def __init__(self, plugins, fifo, lock, running):
        self.process = subprocess.Popen(
            [sys.executable, "-c", GATEWAY, lock, plugins.marker, *running],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.runner, *self.slots = map(int, self.process.stdout.readline().split())
        self.handles = [os.pidfd_open(pid) for pid in (self.runner, *self.slots)]
        for _ in running:
            fifo.line()
            fifo.line()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def gone(self):
        """Whether runner and slots have ended, or do so before the limit."""
        for handle in self.handles:
            ended = select.select([handle], [], [], WAIT_LIMIT)[0]
            os.close(handle)
            if not ended:
                return False
        return True


def wait_for_lock(path):
    """Take the lock, as a new gateway does."""
    with open(path, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "lock"
    path.touch()
    return str(path)


def test_a_killed_gateway_leaves_no_process_and_frees_the_lock(plugins, fifo, lock, hostile):
    gateway = Gateway(plugins, fifo, lock, [hostile, hostile])
    with open(lock, "r+") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert plugins.alive()
    gateway.kill()
    wait_for_lock(lock)
    assert plugins.alive() == []
    assert gateway.gone()


def test_a_stopped_slot_does_not_outlive_its_gateway(plugins, fifo, lock, hostile):
    gateway = Gateway(plugins, fifo, lock, [hostile, hostile])
    stop_process(gateway.slots[0])
    gateway.kill()
    wait_for_lock(lock)
    assert plugins.alive() == []
    assert gateway.gone()


def test_a_stopped_runner_does_not_outlive_its_gateway(plugins, fifo, lock, hostile):
    gateway = Gateway(plugins, fifo, lock, [hostile])
    stop_process(gateway.runner)
    gateway.kill()
    wait_for_lock(lock)
    assert plugins.alive() == []
    assert gateway.gone()


def test_a_killed_gateway_and_runner_leave_no_process(plugins, fifo, lock, hostile):
    gateway = Gateway(plugins, fifo, lock, [hostile, hostile])
    os.kill(gateway.runner, signal.SIGKILL)
    gateway.kill()
    wait_for_lock(lock)
    assert plugins.alive() == []
    assert gateway.gone()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_runner_and_slots_ignore_signals_that_are_sent_to_all(pool, plugins, start, fifo, number):
    plugin = plugins.shell(f"echo > {fifo.path}; sleep 0.3; echo ok")
    before = pool.pid, pool.slot(0).pid, pool.slot(1).pid
    future = start(pool.slot(0), plugins.launch(plugin))
    fifo.line()
    for pid in before:
        os.kill(pid, number)
    assert future.result(WAIT_LIMIT).stdout == b"ok\n"
    assert works(pool, plugins)
    assert (pool.pid, pool.slot(0).pid, pool.slot(1).pid) == before


def test_a_killed_slot_loses_its_job_and_is_replaced(pool, plugins, start, fifo, hostile):
    runner, slot = pool.pid, pool.slot(0).pid
    future = start(pool.slot(0), plugins.launch(hostile))
    children = [fifo.number(), fifo.number()]
    os.kill(slot, signal.SIGKILL)
    outcome = future.result(WAIT_LIMIT)
    assert outcome.ending is Ending.LOST
    assert str(slot) in outcome.reason
    assert plugins.alive() == []
    assert [process_state(pid) for pid in children] == ["", ""]
    assert works(pool, plugins)
    assert pool.pid == runner
    assert pool.slot(0).pid != slot


def test_slot_killed_while_idle_is_replaced_before_the_next_run(pool, plugins):
    slot = pool.slot(0).pid
    handle = os.pidfd_open(slot)
    os.kill(slot, signal.SIGKILL)
    assert select.select([handle], [], [], WAIT_LIMIT)[0]
    os.close(handle)
    assert works(pool, plugins)
    assert pool.slot(0).pid != slot


def test_launch_that_a_dying_slot_did_not_take_runs_in_its_successor(pool, plugins):
    """However close in time the death and the launch are."""
    for _ in range(20):
        stop_process(pool.slot(0).pid)
        os.kill(pool.slot(0).pid, signal.SIGKILL)
        assert pool.slot(0).run(plugins.launch("/bin/echo", "ok")).stdout == b"ok\n"


def test_a_killed_slot_does_not_disturb_the_others(pool, plugins, start, fifo, hostile):
    lost = start(pool.slot(0), plugins.launch(hostile))
    fifo.line(), fifo.line()
    kept = start(
        pool.slot(1), plugins.launch(plugins.shell(f"echo > {fifo.path}; sleep 1; echo ok"))
    )
    fifo.line()
    os.kill(pool.slot(0).pid, signal.SIGKILL)
    assert lost.result(WAIT_LIMIT).ending is Ending.LOST
    assert kept.result(WAIT_LIMIT).stdout == b"ok\n"


def test_plugin_that_kills_its_slot_is_lost_and_does_not_survive(pool, plugins):
    outcome = pool.slot(0).run(plugins.launch(plugins.shell("kill -9 $PPID; sleep 3600")))
    assert outcome.ending is Ending.LOST
    assert plugins.alive() == []


def test_stopped_slot_is_lost_after_deadline_and_grace_and_is_replaced(
    pool, plugins, start, fifo, hostile
):
    slot = pool.slot(0).pid
    future = start(pool.slot(0), plugins.launch(hostile, timeout=BY_THEN, grace=0.1))
    fifo.line(), fifo.line()
    stop_process(slot)
    outcome = future.result(WAIT_LIMIT)
    assert outcome.ending is Ending.LOST
    assert "did not answer" in outcome.reason
    assert plugins.alive() == []
    assert process_state(slot) == ""
    assert works(pool, plugins)


def test_stopped_slot_that_is_cancelled_is_lost_after_the_grace(
    pool, plugins, start, fifo, hostile
):
    slot = pool.slot(0).pid
    future = start(pool.slot(0), plugins.launch(hostile, timeout=3600.0))
    fifo.line(), fifo.line()
    stop_process(slot)
    pool.slot(0).cancel(0)
    assert future.result(WAIT_LIMIT).ending is Ending.LOST
    assert plugins.alive() == []


def test_a_killed_runner_loses_its_jobs_and_is_started_again(plugins, fifo, start_on, hostile):
    events = []
    pool = RunnerPool(2, on_event=lambda name, details: events.append((name, details)))
    pool.start()
    runner, slots = pool.pid, [pool.slot(0).pid, pool.slot(1).pid]
    futures = [start_on(pool.slot(n), plugins.launch(hostile)) for n in (0, 1)]
    children = [fifo.number() for _ in range(4)]
    os.kill(runner, signal.SIGKILL)
    outcomes = [future.result(WAIT_LIMIT) for future in futures]
    assert [outcome.ending for outcome in outcomes] == [Ending.LOST, Ending.LOST]
    assert all(f"runner (pid {runner})" in outcome.reason for outcome in outcomes)
    assert plugins.alive() == []
    assert {process_state(pid) for pid in (runner, *slots, *children)} == {""}
    assert works(pool, plugins)
    assert pool.pid != runner
    pool.stop()
    names = [name for name, _ in events]
    assert names.count("runner.started") == 2
    assert names.count("runner.lost") == 1


def test_runner_killed_while_idle_is_started_again_at_the_next_run(pool, plugins):
    runner, slots = pool.pid, [pool.slot(0).pid, pool.slot(1).pid]
    os.kill(runner, signal.SIGKILL)
    until(lambda: all(process_state(pid) in ("", "Z") for pid in (runner, *slots)))
    assert works(pool, plugins)
    assert pool.pid != runner
    assert {process_state(pid) for pid in (runner, *slots)} == {""}


def test_a_killed_runner_and_slots_leave_no_process(pool, plugins, start, fifo, hostile):
    futures = [start(pool.slot(n), plugins.launch(hostile)) for n in (0, 1)]
    children = [fifo.number() for _ in range(4)]
    for pid in (pool.slot(0).pid, pool.pid, pool.slot(1).pid):
        os.kill(pid, signal.SIGKILL)
    assert {future.result(WAIT_LIMIT).ending for future in futures} == {Ending.LOST}
    assert plugins.alive() == []
    assert {process_state(pid) for pid in children} == {""}
    assert works(pool, plugins)


def test_a_stopped_runner_is_replaced_together_with_a_dead_slot(plugins, monkeypatch):
    monkeypatch.setattr(runner_pool, "_REPLY_SECONDS", 1)
    pool = RunnerPool(2)
    pool.start()
    runner, slots = pool.pid, [pool.slot(0).pid, pool.slot(1).pid]
    stop_process(runner)
    os.kill(slots[0], signal.SIGKILL)
    assert works(pool, plugins)
    assert pool.pid != runner
    assert {process_state(pid) for pid in (runner, *slots)} == {""}
    pool.stop()


def test_a_runner_that_does_not_answer_to_a_resize_is_replaced(plugins, monkeypatch):
    monkeypatch.setattr(runner_pool, "_REPLY_SECONDS", 1)
    events = []
    pool = RunnerPool(2, on_event=lambda name, _details: events.append(name))
    pool.start()
    runner = pool.pid
    stop_process(runner)
    slots = pool.provide(3)
    assert pool.pid != runner
    assert process_state(runner) == ""
    assert events == ["runner.started", "runner.lost", "runner.started"]
    slots = pool.provide(5)
    assert len({slot.pid for slot in slots} - {0}) == 5
    # Each launch reaches the process of its own slot, whose pid is the plugin's parent.
    parent = plugins.shell("echo $PPID")
    for slot in slots:
        assert int(slot.run(plugins.launch(parent)).stdout) == slot.pid
    pool.stop()


def test_a_reply_for_another_slot_replaces_the_runner(pool, plugins):
    runner = pool.pid
    # As if an earlier request had been given up.
    pool._control.send(supervisor.SLOT_REQUEST.pack(7))
    os.kill(pool.slot(0).pid, signal.SIGKILL)
    before = descriptors().total()
    assert works(pool, plugins)
    assert pool.pid != runner
    assert descriptors().total() <= before


def test_stop_ends_a_stopped_runner_too(plugins, fifo, start_on, hostile, monkeypatch):
    monkeypatch.setattr(runner_pool, "_END_PATIENCE", 0.3)
    pool = RunnerPool(1)
    pool.start()
    pids = [pool.pid, pool.slot(0).pid]
    future = start_on(pool.slot(0), plugins.launch(hostile))
    fifo.line(), fifo.line()
    stop_process(pids[1])
    stop_process(pids[0])
    pool.stop()
    assert {process_state(pid) for pid in pids} == {""}
    assert plugins.alive() == []
    assert future.result(WAIT_LIMIT).ending is Ending.LOST


def test_a_slot_that_cannot_be_replaced_now_is_replaced_later(pool, plugins):
    def descriptors():
        # A descriptor that is closed at this moment resolves to its own path.
        folder = f"/proc/{pool.pid}/fd"
        return {int(fd): os.path.realpath(f"{folder}/{fd}") for fd in os.listdir(folder)}

    # The runner has closed the last slot's socket: the one to the gateway is left.
    until(lambda: sum("/socket:" in name for name in descriptors().values()) == 1)
    # Room for one more descriptor, where a slot's socket takes two.
    few = min(set(range(100)) - set(descriptors())) + 1
    before = resource.prlimit(pool.pid, resource.RLIMIT_NOFILE)
    os.kill(pool.slot(0).pid, signal.SIGKILL)
    resource.prlimit(pool.pid, resource.RLIMIT_NOFILE, (few, before[1]))
    outcome = pool.slot(0).run(plugins.launch(plugins.shell(OK)))
    assert (outcome.ending, outcome.errno) == (Ending.NOT_SPAWNED, errno.EAGAIN)
    assert "cannot be replaced" in outcome.reason
    assert pool.slot(1).run(plugins.launch(plugins.shell(OK))).stdout == b"ok\n"
    resource.prlimit(pool.pid, resource.RLIMIT_NOFILE, before)
    assert works(pool, plugins)


def test_a_runner_of_another_version_is_refused_with_a_reason(
    pool, plugins, monkeypatch, capfd: pytest.CaptureFixture[str]
):
    """As after an upgrade of the package while the gateway runs."""
    monkeypatch.setattr("ductile.__version__", "0.0.0")
    pids = [pool.pid, pool.slot(0).pid]
    os.kill(pool.pid, signal.SIGKILL)
    until(lambda: all(process_state(pid) in ("", "Z") for pid in pids))
    outcome = pool.slot(0).run(plugins.launch(plugins.shell(OK)))
    assert (outcome.ending, outcome.errno) == (Ending.NOT_SPAWNED, errno.EAGAIN)
    assert "cannot be started again: the new one died, too" in outcome.reason
    assert "ductile 0.0.0 was replaced" in capfd.readouterr().err
    monkeypatch.undo()
    assert works(pool, plugins)


def test_a_job_that_cannot_be_started_can_be_cancelled(plugins):
    def renew(slot, broken, why):
        slot.cancel(5)
        return why

    outcome = SlotClient(0, renew).run(plugins.launch(plugins.shell(OK)))
    assert outcome.ending is Ending.CANCELLED


def test_other_children_of_the_process_are_not_killed(pool, plugins):
    ours = subprocess.Popen(["sleep", "60"])
    own_session = subprocess.Popen(["sleep", "60"], start_new_session=True)
    ended = subprocess.Popen(["sh", "-c", "exit 5"])
    try:
        until(lambda: process_state(ended.pid) == "Z")
        os.kill(pool.pid, signal.SIGKILL)
        until(lambda: process_state(pool.pid) == "Z")
        assert works(pool, plugins)
        pool.stop()
        assert (ours.poll(), own_session.poll()) == (None, None)
        assert ended.wait() == 5
    finally:
        for process in (ours, own_session):
            process.kill()
            process.wait()


def test_stop_ends_all_processes_and_is_idempotent(plugins, fifo, start_on, hostile, lock):
    with open(lock, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        pool = RunnerPool(2, lock_fd=file.fileno())
        pool.start()
        pids = [pool.pid, pool.slot(0).pid, pool.slot(1).pid]
        future = start_on(pool.slot(0), plugins.launch(hostile))
        children = [fifo.number(), fifo.number()]
        pool.stop()
        pool.stop()
        assert {process_state(pid) for pid in pids + children} == {""}
        assert plugins.alive() == []
        assert future.result(WAIT_LIMIT).ending is Ending.LOST
    wait_for_lock(lock)
    assert pool.pid == 0
    outcome = pool.slot(0).run(plugins.launch(plugins.shell(OK)))
    assert (outcome.ending, outcome.reason) == (Ending.NOT_SPAWNED, "the runner was stopped")


def test_stop_ends_a_stopped_slot_too(plugins, fifo, start_on, hostile):
    pool = RunnerPool(1)
    pool.start()
    future = start_on(pool.slot(0), plugins.launch(hostile))
    fifo.line(), fifo.line()
    stop_process(pool.slot(0).pid)
    pool.stop()
    assert plugins.alive() == []
    assert future.result(WAIT_LIMIT).ending is Ending.LOST


def test_start_uses_the_runner_that_was_launched(plugins):
    pool = RunnerPool(2)
    pool.launch()
    runner = pool.pid
    pool.launch()
    pool.start()
    assert pool.pid == runner
    assert works(pool, plugins)
    pool.stop()
    assert process_state(runner) == ""


def test_stop_ends_a_runner_that_was_only_launched():
    pool = RunnerPool(1)
    pool.launch()
    runner = pool.pid
    pool.stop()
    assert process_state(runner) == ""
    assert pool.pid == 0


def test_start_fails_where_the_launched_runner_died():
    pool = RunnerPool(1)
    pool.launch()
    os.kill(pool.pid, signal.SIGKILL)
    with pytest.raises(ConnectionError):
        pool.start()
    assert pool.pid == 0


def test_a_pool_can_be_started_again(pool, plugins):
    pool.stop()
    pool.start()
    assert works(pool, plugins)


def test_stop_leaves_no_child_and_no_descriptor(plugins):
    held, children = descriptors(), set(reaper.children(os.getpid()))
    for _ in range(3):
        pool = RunnerPool(2)
        pool.start()
        os.kill(pool.slot(0).pid, signal.SIGKILL)
        works(pool, plugins)
        os.kill(pool.pid, signal.SIGKILL)
        works(pool, plugins)
        pool.stop()
    assert not descriptors() - held
    assert set(reaper.children(os.getpid())) <= children
