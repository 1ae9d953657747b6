"""The write queue: who takes an entry, and when the writer is start_writer."""

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


def recently_emptied() -> WriteQueue:
    """A queue from which another thread has just taken two entries."""
    queue = WriteQueue()
    for _ in range(2):
        queue.put(pending())
    assert len(queue.take(10, by_writer=False)) == 2
    return queue


@pytest.fixture
def long_intervals(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Intervals so long that a writer that waits for them fails the test."""
    monkeypatch.setattr(write_queue, "CHECK_INTERVAL", LONG)
    monkeypatch.setattr(write_queue, "COMMITS_STOPPED", LONG)
    return monkeypatch


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def start_writer(queue: WriteQueue, threads: ThreadPoolExecutor) -> Future[bool]:
    """A writer that waits."""
    writer = threads.submit(queue.wait)
    with pytest.raises(TimeoutError):
        writer.result(0.05)
    return writer


def test_take_returns_entries_in_order_up_to_the_limit() -> None:
    queue, all = WriteQueue(), [pending() for _ in range(5)]
    for one in all:
        queue.put(one)
    assert queue.take(3) == all[:3]
    assert queue.take(3) == all[3:]
    assert queue.take(3) == []


@pytest.mark.usefixtures("long_intervals")
def test_put_wakes_the_writer(threads: ThreadPoolExecutor) -> None:
    queue = WriteQueue()
    writer = start_writer(queue, threads)
    queue.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("long_intervals")
def test_writer_sees_entries_that_came_before_it() -> None:
    queue = WriteQueue()
    queue.put(pending())
    assert queue.wait()
    assert queue.wait()


@pytest.mark.usefixtures("long_intervals")
def test_a_queue_that_others_empty_does_not_wake_the_writer(
    threads: ThreadPoolExecutor,
) -> None:
    queue = recently_emptied()
    writer = start_writer(queue, threads)
    queue.put(pending())
    assert queue._wakeups.empty()
    with pytest.raises(TimeoutError):
        writer.result(0.05)
    assert len(queue.take(10, by_writer=False)) == 1
    queue.close()
    assert not writer.result(WAIT_LIMIT)


def test_entry_that_is_not_taken_by_others_is_left_to_the_writer(
    long_intervals: pytest.MonkeyPatch,
) -> None:
    long_intervals.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    queue = recently_emptied()
    queue.put(pending())
    assert queue.wait()


def test_entry_that_comes_between_checks_is_found(
    long_intervals: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    long_intervals.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    queue = recently_emptied()
    writer = start_writer(queue, threads)
    queue.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("long_intervals")
def test_single_entries_do_not_wait(threads: ThreadPoolExecutor) -> None:
    queue = recently_emptied()
    queue.put(pending())
    assert len(queue.take(10, by_writer=False)) == 1
    queue.put(pending())
    assert threads.submit(queue.wait).result(WAIT_LIMIT)


def test_entries_do_not_wait_after_other_commits_have_stopped(
    long_intervals: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    long_intervals.setattr(write_queue, "COMMITS_STOPPED", 0.0)
    queue = recently_emptied()
    queue.put(pending())
    assert threads.submit(queue.wait).result(WAIT_LIMIT)


@pytest.mark.usefixtures("long_intervals")
def test_closed_queue_leaves_the_rest_to_the_writer(threads: ThreadPoolExecutor) -> None:
    queue = recently_emptied()
    writer = start_writer(queue, threads)
    queue.put(pending())
    queue.close()
    assert writer.result(WAIT_LIMIT)
    queue.take(1)
    assert not queue.wait()


def test_no_entry_is_lost_or_taken_twice(threads: ThreadPoolExecutor) -> None:
    """Four threads submit, one writes, and another one takes entries along for a while."""
    queue, taken, each = WriteQueue(), [], 2000
    made = [[pending() for _ in range(each)] for _ in range(4)]
    left = threading.Semaphore(0)

    def submit(mine: list[PendingWrite]) -> None:
        for one in mine:
            queue.put(one)

    def collect(found: list[PendingWrite]) -> None:
        taken.extend(found)
        for _ in found:
            left.release()

    def take_along() -> None:
        while len(taken) < 3 * each:
            collect(queue.take(7, by_writer=False))
            time.sleep(0)

    def write() -> None:
        while queue.wait():
            collect(queue.take(7))

    writer, other = threads.submit(write), threads.submit(take_along)
    for mine in made:
        threads.submit(submit, mine)
    assert all(left.acquire(timeout=WAIT_LIMIT) for _ in range(4 * each))
    queue.close()
    other.result(WAIT_LIMIT)
    writer.result(WAIT_LIMIT)
    assert sorted(map(id, taken)) == sorted(id(one) for mine in made for one in mine)
