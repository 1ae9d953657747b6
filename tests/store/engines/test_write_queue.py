"""What was submitted: who takes it, and when the writer is called for it."""

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
    """That of a carrier who has just taken two along."""
    box = WriteQueue()
    for _ in range(2):
        box.put(pending())
    assert len(box.take(10, by_writer=False)) == 2
    return box


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nobody who should not wait would come back within a test."""
    monkeypatch.setattr(write_queue, "CHECK_INTERVAL", LONG)
    monkeypatch.setattr(write_queue, "COMMITS_STOPPED", LONG)
    return monkeypatch


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


def woken(box: WriteQueue, threads: ThreadPoolExecutor) -> Future[bool]:
    """The writer, who waits."""
    writer = threads.submit(box.wait)
    with pytest.raises(TimeoutError):
        writer.result(0.05)
    return writer


def test_it_is_taken_in_order_and_no_more_than_wanted() -> None:
    box, all = WriteQueue(), [pending() for _ in range(5)]
    for one in all:
        box.put(one)
    assert box.take(3) == all[:3]
    assert box.take(3) == all[3:]
    assert box.take(3) == []


@pytest.mark.usefixtures("patience")
def test_the_writer_is_called_at_once(threads: ThreadPoolExecutor) -> None:
    box = WriteQueue()
    writer = woken(box, threads)
    box.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_what_came_before_the_writer_did_is_seen() -> None:
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


def test_what_nobody_takes_along_is_for_the_writer(patience: pytest.MonkeyPatch) -> None:
    patience.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    box = accompanied()
    box.put(pending())
    assert box.wait()


def test_what_came_while_the_writer_patrolled_is_found(
    patience: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    patience.setattr(write_queue, "CHECK_INTERVAL", 0.02)
    box = accompanied()
    writer = woken(box, threads)
    box.put(pending())
    assert writer.result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_where_they_come_one_by_one_none_waits(threads: ThreadPoolExecutor) -> None:
    box = accompanied()
    box.put(pending())
    assert len(box.take(10, by_writer=False)) == 1
    box.put(pending())
    assert threads.submit(box.wait).result(WAIT_LIMIT)


def test_nor_where_nobody_carries_any_more(
    patience: pytest.MonkeyPatch, threads: ThreadPoolExecutor
) -> None:
    patience.setattr(write_queue, "COMMITS_STOPPED", 0.0)
    box = accompanied()
    box.put(pending())
    assert threads.submit(box.wait).result(WAIT_LIMIT)


@pytest.mark.usefixtures("patience")
def test_closed_it_lets_the_writer_have_the_rest(threads: ThreadPoolExecutor) -> None:
    box = accompanied()
    writer = woken(box, threads)
    box.put(pending())
    box.close()
    assert writer.result(WAIT_LIMIT)
    box.take(1)
    assert not box.wait()


def test_none_is_lost_or_taken_twice(threads: ThreadPoolExecutor) -> None:
    """Four submit, one writes, and one carries now and then: the patrol begins and ends, and the
    last are for the writer alone."""
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
