"""What a thread with several slots waits for: their answers, and calls from other threads."""

from __future__ import annotations

import contextlib
import os
import select
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from ductile.runner.client import SlotClient
from ductile.runner.connection import SlotConnection

T = TypeVar("T")
_IN, _OUT = select.EPOLLIN, select.EPOLLOUT


class _Watched:
    """The connection of a slot that is watched, at this descriptor, for these events."""

    __slots__ = ("connection", "events", "fd", "slot")

    def __init__(self, slot: SlotClient, connection: SlotConnection, events: int) -> None:
        self.slot, self.connection, self.events = slot, connection, events
        self.fd = connection.sock.fileno()


class EventLoop:
    """Waits for slots by `epoll`, and for other threads by an `eventfd`."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._epoll.register(self._wake_fd, _IN)
        self._wake_lock = threading.Lock()
        """Held while the descriptor is used: after `close`, its number may be another file's."""
        self._is_closed = False
        self._by_fd: dict[int, _Watched] = {}
        self._by_slot: dict[SlotClient, _Watched] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._thread = 0

    def close(self) -> None:
        with self._wake_lock:
            self._is_closed = True
            self._epoll.close()
            os.close(self._wake_fd)

    # For any thread

    def wake(self) -> None:
        """Make `wait` return; where nothing waits, the next `wait`. Does nothing after `close`.

        A thread whose call has been made may come here after the end of the thread that waits.
        """
        with self._wake_lock:
            if not self._is_closed:
                os.eventfd_write(self._wake_fd, 1)

    def call_soon(self, call: Callable[[], None]) -> None:
        """Have `run_calls` make this call."""
        self._calls.append(call)
        if threading.get_ident() != self._thread:
            self.wake()

    def run_in_thread(self, work: Callable[[], T], then: Callable[[Future[T]], None]) -> None:
        """Run `work` in a new thread, and have `run_calls` pass its result or error to `then`."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except Exception as error:  # noqa: BLE001 - `done.result()` raises it again
                done.set_exception(error)
            self.call_soon(partial(then, done))

        try:
            threading.Thread(target=run, name="slot-task", daemon=True).start()
        except RuntimeError:
            # The system has no thread left: a delay is better than a task that is lost.
            run()

    # For the thread that waits

    @property
    def has_calls(self) -> bool:
        return bool(self._calls)

    def run_calls(self) -> None:
        self._thread = threading.get_ident()
        while self._calls:
            self._calls.popleft()()

    def wait(self, seconds: float) -> list[SlotClient]:
        """Wait for an answer or a wake-up, and return the slots that can be read or written.

        -1 waits without a limit.
        """
        ready = []
        for fd, _ in self._epoll.poll(seconds):
            if fd == self._wake_fd:
                os.eventfd_read(fd)
            else:
                ready.append(self._by_fd[fd].slot)
        return ready

    def watch(self, slot: SlotClient) -> None:
        """Watch the slot's present connection, until `unwatch`."""
        connection, events = slot.connection, _IN | _OUT if slot.is_sending else _IN
        watched = self._by_slot.get(slot)
        if watched is None or watched.connection is not connection:
            self.unwatch(slot)
            if connection is not None:
                watched = _Watched(slot, connection, events)
                self._by_fd[watched.fd] = self._by_slot[slot] = watched
                self._epoll.register(watched.fd, events)
        elif events != watched.events:
            watched.events = events
            self._epoll.modify(watched.fd, events)

    def unwatch(self, slot: SlotClient) -> None:
        watched = self._by_slot.pop(slot, None)
        # A closed descriptor has left the set by itself, and its number may be in use again.
        if watched is not None and self._by_fd.get(watched.fd) is watched:
            del self._by_fd[watched.fd]
            with contextlib.suppress(OSError):
                self._epoll.unregister(watched.fd)
