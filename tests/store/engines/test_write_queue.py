"""The write queue: who takes an entry, and when the writer is woken."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from ductile.store.engines import write_queue
from ductile.store.engines.write_queue import PendingWrite, WriteQueue
from tests.waiting import WAIT_LIMIT

LONG = 30.0


def pending() -> PendingWrite:
    return PendingWrite(lambda _: None, lambda *_: None)


def accompanied() -> WriteQueue:
    """A queue from which another thread has just taken two entries."""
    box = WriteQueue()
    for _ in range(2):
        box.put(pending())
    assert len(box.take(10, by_writer=False)) == 2
    return box


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Intervals so long that a writer that waits for them fails the test."""
    monkeypatch.setattr(write_queue, "CHECK_INTERVAL", LONG)
    monkeypatch.setattr(write_queue, "COMMITS_STOPPED", LONG)
    return monkeypatch


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def woken(box: WriteQueue, threads: ThreadPoolExecutor) -> Future[bool]:
    """A writer that waits."""
    writer = threads.submit(box.wait)
    with pytest.raises(TimeoutError):
        writer.result(0.05)
    return writer


def test_take_returns_entries_in_order_up_to_the_limit() -> None:
    box, all = WriteQueue(), [pending() for _ in range(5)]
    for one in all:
        box.put(one)
    assert box.take(3) == all[:3]
    assert box.take(3) == all[3:]
    assert box.take(3) == []


@pytest.mark.usefixtures("patience")
def test_put_wakes_the_writer(threads: ThreadPoolExecutor) -> None:
    box = WriteQueue()
    writer = woken(box, threads)
    box.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_writer_sees_entries_that_came_before_it() -> None:
    box = WriteQueue()
    box.put(pending())
    assert box.wait()
    assert box.wait()


@pytest.mark.usefixtures("patience")
def test_a_queue_that_others_empty_does_not_wake_the_writer(
    threads: ThreadPoolExecutor,
) -> None:
    box = accompanied()
    writer = woken(box, threads)
    box.put(pending())
    assert box._wakeups.empty()
    with pytest.raises(TimeoutError):
        writer.result(0.05)
    assert len(box.take(10, by_writer=False)) == 1
    box.close()
    assert not writer.result(WAIT_LIMIT)


def test_entry_that_is_not_taken_by_others_is_left_to_the_writer(
    patience: pytest.MonkeyPatch,
) -> None:
    patience.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    box = accompanied()
    box.put(pending())
    assert box.wait()


def test_entry_that_comes_between_checks_is_found(
    patience: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    patience.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    box = accompanied()
    writer = woken(box, threads)
    box.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_single_entries_do_not_wait(threads: ThreadPoolExecutor) -> None:
    box = accompanied()
    box.put(pending())
    assert len(box.take(10, by_writer=False)) == 1
    box.put(pending())
    assert threads.submit(box.wait).result(WAIT_LIMIT)


def test_entries_do_not_wait_after_other_commits_have_stopped(
    patience: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    patience.setattr(write_queue, "COMMITS_STOPPED", 0.0)
    box = accompanied()
    box.put(pending())
    assert threads.submit(box.wait).result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_closed_queue_leaves_the_rest_to_the_writer(threads: ThreadPoolExecutor) -> None:
    box = accompanied()
    writer = woken(box, threads)
    box.put(pending())
    box.close()
    assert writer.result(WAIT_LIMIT)
    box.take(1)
    assert not box.wait()


def test_no_entry_is_lost_or_taken_twice(threads: ThreadPoolExecutor) -> None:
    """Four threads submit, one writes, and another one takes entries along for a while."""
    box, taken, each = WriteQueue(), [], 2000
    made = [[pending() for _ in range(each)] for _ in range(4)]
    left = threading.Semaphore(0)

    def submit(mine: list[PendingWrite]) -> None:
        for one in mine:
            box.put(one)

    def collect(found: list[PendingWrite]) -> None:
        taken.extend(found)
        for _ in found:
            left.release()

    def carry() -> None:
        while len(taken) < 3 * each:
            collect(box.take(7, by_writer=False))
            time.sleep(0)

    def write() -> None:
        while box.wait():
            collect(box.take(7))

    writer, carrier = threads.submit(write), threads.submit(carry)
    for mine in made:
        threads.submit(submit, mine)
    assert all(left.acquire(timeout=WAIT_LIMIT) for _ in range(4 * each))
    box.close()
    carrier.result(WAIT_LIMIT)
    writer.result(WAIT_LIMIT)
    assert sorted(map(id, taken)) == sorted(id(one) for mine in made for one in mine)
