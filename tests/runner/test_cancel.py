from __future__ import annotations

import os
import select
import signal
import time
from concurrent.futures import ThreadPoolExecutor

from ductile.model import Ending
from tests.waiting import WAIT_LIMIT, stop_process


def waiting(plugins, fifo, body="sleep 3600"):
    return plugins.shell(f"echo so far; echo $$ > {fifo.path}; {body}")


def test_cancel_ends_the_running_plugin(pool, plugins, start, fifo):
    future = start(pool.slot(0), plugins.launch(waiting(plugins, fifo)))
    fifo.line()
    pool.slot(0).cancel(30.0)
    outcome = future.result(WAIT_LIMIT)
    assert (outcome.ending, outcome.exit_code) == (Ending.CANCELLED, None)
    assert outcome.stdout == b"so far\n"


def test_cancel_kills_after_its_grace(pool, plugins, start, fifo):
    plugin = plugins.shell(f"trap '' TERM; echo > {fifo.path}; while :; do sleep 1; done")
    future = start(pool.slot(0), plugins.launch(plugin))
    fifo.line()
    pool.slot(0).cancel(0.4)
    assert future.result(WAIT_LIMIT).ending is Ending.CANCELLED


def test_cancel_kills_nothing_within_its_grace(pool, plugins, start, fifo):
    plugin = plugins.shell(
        f"trap 'echo term > {fifo.path}' TERM; echo up > {fifo.path}; while :; do sleep 0.1; done"
    )
    future = start(pool.slot(0), plugins.launch(plugin))
    assert fifo.line() == "up"
    pool.slot(0).cancel(3600.0)
    assert fifo.line() == "term"
    assert plugins.alive()
    pool.slot(0).cancel(0)
    assert future.result(WAIT_LIMIT).ending is Ending.CANCELLED


def test_cancel_without_grace_kills_at_once_and_sends_no_sigterm(pool, plugins, start, fifo):
    plugin = plugins.shell(
        f"trap 'echo term > {fifo.path}' TERM; echo > {fifo.path}; while :; do sleep 0.1; done"
    )
    future = start(pool.slot(0), plugins.launch(plugin))
    fifo.line()
    pool.slot(0).cancel(0)
    assert future.result(WAIT_LIMIT).ending is Ending.CANCELLED
    assert plugins.alive() == []
    pool.slot(0).run(plugins.launch(plugins.shell(f"echo next > {fifo.path}")))
    assert fifo.line() == "next"


def test_a_cancel_that_arrives_together_with_the_launch_ends_it(pool, plugins):
    slot = pool.slot(0)
    stop_process(slot.pid)
    assert slot.start(plugins.launch("/bin/sleep", "3600")) is None
    slot.cancel(0.0)
    os.kill(slot.pid, signal.SIGCONT)
    while (outcome := slot.read_outcome()) is None:
        assert select.select([slot.connection.sock], [], [], WAIT_LIMIT)[0]
    assert outcome.ending is Ending.CANCELLED


def test_a_second_cancel_can_only_shorten_the_grace(pool, plugins, start, fifo):
    plugin = plugins.shell(f"trap '' TERM; echo > {fifo.path}; while :; do sleep 1; done")
    future = start(pool.slot(0), plugins.launch(plugin))
    fifo.line()
    pool.slot(0).cancel(30.0)
    pool.slot(0).cancel(60.0)
    pool.slot(0).cancel(0)
    assert future.result(WAIT_LIMIT).ending is Ending.CANCELLED


def test_cancel_of_an_idle_slot_does_nothing(pool, plugins):
    slot = pool.slot(0)
    slot.cancel(0)
    assert slot.run(plugins.launch(plugins.shell("echo a"))).ending is Ending.EXITED
    slot.cancel(0)
    assert slot.run(plugins.launch(plugins.shell("echo b"))).stdout == b"b\n"


def test_cancel_ends_a_lingering_plugin(pool, plugins, start, fifo):
    plugin = plugins.shell(f"echo done; exec >&-; echo > {fifo.path}; sleep 3600")
    future = start(pool.slot(0), plugins.launch(plugin))
    fifo.line()
    pool.slot(0).cancel(0)
    outcome = future.result(WAIT_LIMIT)
    assert (outcome.ending, outcome.stdout) == (Ending.CANCELLED, b"done\n")


def test_cancel_of_one_slot_leaves_the_other_alone(pool, plugins, start, fifo):
    first = start(pool.slot(0), plugins.launch(waiting(plugins, fifo)))
    fifo.line()
    second = start(pool.slot(1), plugins.launch(waiting(plugins, fifo)))
    process = fifo.number()
    pool.slot(0).cancel(0)
    assert first.result(WAIT_LIMIT).ending is Ending.CANCELLED
    assert plugins.alive()
    os.kill(process, signal.SIGKILL)
    outcome = second.result(WAIT_LIMIT)
    assert (outcome.ending, outcome.exit_code) == (Ending.EXITED, -9)


def test_a_cancel_never_hits_a_job_that_starts_after_it(pool, plugins):
    """While short jobs are cancelled at any time, each is either cancelled or whole; afterwards no
    job is cancelled."""
    slot = pool.slot(0)
    launch = plugins.launch(plugins.shell("echo whole"))
    stop = False

    def rain():
        while not stop:
            slot.cancel(0)
            time.sleep(0.0007)

    with ThreadPoolExecutor(1) as threads:
        raining = threads.submit(rain)
        outcomes = [slot.run(launch) for _ in range(150)]
        stop = True
        raining.result(WAIT_LIMIT)
    assert {outcome.ending for outcome in outcomes} <= {Ending.EXITED, Ending.CANCELLED}
    assert all(o.stdout == b"whole\n" for o in outcomes if o.ending is Ending.EXITED)
    assert slot.run(launch).ending is Ending.EXITED
