"""Waiting for several slots, and for calls from other threads."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from ductile.runner.client import SlotClient
from ductile.runner.connection import SlotConnection
from ductile.runner.event_loop import EventLoop
from tests.waiting import WAIT_LIMIT


class SocketSlot(SlotClient):
    """A slot whose far end the test holds."""

    def __init__(self) -> None:
        super().__init__(0, lambda slot, link, why: why)
        self.far: socket.socket | None = None
        self.connect()

    def connect(self) -> None:
        """As after a replacement of its process."""
        near, far = socket.socketpair()
        self.set_connection(SlotConnection(0, near.detach()))
        self.close_far()
        self.far = far

    def answer(self) -> None:
        assert self.far is not None
        self.far.send(b".")

    def close_far(self) -> None:
        if self.far is not None:
            self.far.close()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    loop = EventLoop()
    loop.run_calls()
    yield loop
    loop.close()


@pytest.fixture
def slot() -> Iterator[SocketSlot]:
    slot = SocketSlot()
    yield slot
    slot.set_connection(None)
    slot.close_far()


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_a_wake_up_before_the_wait_is_not_missed(loop: EventLoop) -> None:
    loop.wake()
    assert loop.wait(-1) == []
    assert loop.wait(0) == []


def test_a_slot_that_answers_is_returned(loop: EventLoop, slot: SocketSlot) -> None:
    loop.watch(slot)
    assert loop.wait(0) == []
    slot.answer()
    assert loop.wait(WAIT_LIMIT) == [slot]


def test_a_slot_that_is_unwatched_is_not_returned(loop: EventLoop, slot: SocketSlot) -> None:
    loop.watch(slot)
    loop.unwatch(slot)
    loop.unwatch(slot)
    slot.answer()
    assert loop.wait(0) == []


def test_the_connection_of_a_replaced_slot_is_watched(loop: EventLoop, slot: SocketSlot) -> None:
    loop.watch(slot)
    slot.connect()
    loop.watch(slot)
    slot.answer()
    assert loop.wait(WAIT_LIMIT) == [slot]


def test_a_descriptor_that_is_used_again_belongs_to_the_new_slot(
    loop: EventLoop, slot: SocketSlot
) -> None:
    loop.watch(slot)
    slot.set_connection(None)
    other = SocketSlot()
    loop.watch(other)
    loop.unwatch(slot)
    other.answer()
    assert loop.wait(WAIT_LIMIT) == [other]
    other.set_connection(None)
    other.close_far()


def test_a_slot_without_a_process_is_not_watched(loop: EventLoop, slot: SocketSlot) -> None:
    loop.watch(slot)
    slot.set_connection(None)
    loop.watch(slot)
    assert loop.wait(0) == []


def test_a_call_from_another_thread_wakes_and_is_made_here(loop: EventLoop) -> None:
    threads: list[int] = []
    in_thread(lambda: loop.call_soon(lambda: threads.append(threading.get_ident())))
    assert loop.wait(-1) == []
    assert loop.has_calls
    loop.run_calls()
    assert threads == [threading.get_ident()]


def test_calls_are_made_in_order_and_with_those_that_they_add(loop: EventLoop) -> None:
    made: list[int] = []

    def first() -> None:
        made.append(1)
        loop.call_soon(lambda: made.append(3))

    loop.call_soon(first)
    loop.call_soon(lambda: made.append(2))
    loop.run_calls()
    assert made == [1, 2, 3]
    assert not loop.has_calls


def test_a_call_that_fails_leaves_the_next_for_the_next_time(loop: EventLoop) -> None:
    made: list[int] = []
    loop.call_soon(lambda: 1 / 0 and None)
    loop.call_soon(lambda: made.append(1))
    with pytest.raises(ZeroDivisionError):
        loop.run_calls()
    loop.run_calls()
    assert made == [1]


@pytest.mark.parametrize("has_threads", [True, False])
def test_a_task_passes_its_result_to_the_waiting_thread(
    loop: EventLoop, monkeypatch: pytest.MonkeyPatch, has_threads: bool
) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if not has_threads:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
    found: list[tuple[int, int]] = []

    def then(done: Future[int]) -> None:
        found.append((done.result(), threading.get_ident()))

    loop.run_in_thread(lambda: 7, then)
    while not found:
        loop.wait(WAIT_LIMIT if has_threads else 0)
        loop.run_calls()
    assert found == [(7, threading.get_ident())]


def test_error_of_a_task_is_raised_where_its_result_is_asked_for(loop: EventLoop) -> None:
    errors: list[BaseException | None] = []

    def fail() -> None:
        raise ValueError("a bug")

    loop.run_in_thread(fail, lambda done: errors.append(done.exception()))
    while not errors:
        loop.wait(WAIT_LIMIT)
        loop.run_calls()
    assert isinstance(errors[0], ValueError)


def test_wake_up_after_the_end_writes_to_no_other_file() -> None:
    loop = EventLoop()
    number = loop._wake_fd
    loop.close()
    reader, writer = os.pipe()
    try:
        os.dup2(writer, number)
        loop.wake()
        assert select.select([reader], [], [], 0)[0] == []
    finally:
        for fd in {reader, writer, number}:
            os.close(fd)
