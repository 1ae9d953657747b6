"""A dispatcher whose slots are in the hand of the test: each run ends when the test says so."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from ductile.engine.dispatch.dispatcher import Dispatcher
from ductile.model import Ending, Launch, Outcome
from ductile.runner.connection import SlotConnection, SlotLost
from tests.engine.site import OK, Running, Site
from tests.waiting import WAIT_LIMIT, until

SUCCEEDED = Outcome(Ending.EXITED, exit_code=0, stdout=b'{"status": "ok", "result": 1}')


class FakeSlot:
    """Replaces a `SlotClient`; runs nothing and buffers nothing."""

    def __init__(self) -> None:
        near, self._far = socket.socketpair()
        self.connection = SlotConnection(0, near.detach())
        self.deadline = float("inf")
        self.is_sending = self.has_answer = False
        self.started = threading.Semaphore(0)
        self.on_cancel: Callable[[], None] = lambda: None
        self.error: Exception | None = None
        self.outcome = SUCCEEDED
        self.lost: SlotLost | None = None
        self.may_be_replaced = threading.Event()

    @property
    def buffered(self) -> int:
        return 0

    @property
    def can_buffer(self) -> bool:
        return True

    def start(self, launch: Launch, log_entry: int) -> None:
        self.started.release()
        if self.lost is not None:
            raise self.lost

    def buffer(self, launch: Launch, log_entry: int) -> bool:
        return False

    def recall(self) -> None:
        pytest.fail("nothing is buffered")

    def advance(self) -> None:
        pytest.fail("nothing is buffered")

    def finish(self, count: int = 1) -> None:
        """End the present run and the next ones."""
        with contextlib.suppress(BrokenPipeError, BlockingIOError):
            self._far.send(b"." * count, socket.MSG_DONTWAIT)

    def die(self) -> None:
        self._far.shutdown(socket.SHUT_WR)

    def read_outcome(self) -> Outcome | None:
        try:
            self.connection.sock.recv(1)
        except BlockingIOError:
            return None
        if self.error is not None:
            raise self.error
        return self.outcome

    def replace(self, lost: SlotLost) -> Outcome | None:
        assert self.may_be_replaced.wait(WAIT_LIMIT)
        return Outcome(Ending.LOST, reason=str(lost)) if lost.launch_taken else None

    def cancel(self, grace: float) -> None:
        self.on_cancel()

    def disconnect(self) -> None:
        pass

    def close(self) -> None:
        self.connection.close()
        self._far.close()


class BufferingSlot(FakeSlot):
    """Buffers launches, starts them on `advance`, and gives them back on `recall`."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: deque[Launch] = deque()
        self.recalls = self.starts = self.given_back = 0
        self._recalled = 0
        """How many of the waiting launches are recalled."""
        self.room = 2
        self.gives_back = self.buffers = True
        self.failed = threading.Event()

    @property
    def buffered(self) -> int:
        return len(self.waiting)

    @property
    def can_buffer(self) -> bool:
        return len(self.waiting) < self.room and not self._recalled

    def start(self, launch: Launch, log_entry: int) -> None:
        self.starts += 1
        super().start(launch, log_entry)

    def buffer(self, launch: Launch, log_entry: int) -> bool:
        if self.buffers:
            self.waiting.append(launch)
        return self.buffers

    def recall(self) -> None:
        self.recalls += 1
        if self.gives_back:
            # `read_outcome` handles the answers.
            self._far.send(b"r" * (len(self.waiting) - self._recalled))
            self._recalled = len(self.waiting)

    def advance(self) -> None:
        self.waiting.popleft()
        self._recalled = min(self._recalled, len(self.waiting))
        self.starts += 1
        self.started.release()

    def read_outcome(self) -> Outcome | None:
        try:
            answer = self.connection.sock.recv(1)
        except BlockingIOError:
            return None
        if self.error is not None:
            self.failed.set()
            raise self.error
        if answer != b"r":
            return self.outcome
        if self._recalled:
            self.waiting.pop()
            self._recalled -= 1
            self.given_back += 1
        return None

    def replace(self, lost: SlotLost) -> Outcome | None:
        self.waiting.clear()
        self._recalled = 0
        return super().replace(lost)


class DispatcherUnderTest:
    """A dispatcher and its slots, on a gateway that is open and not started."""

    def __init__(self, running: Running, slots: Sequence[FakeSlot]) -> None:
        self.running, self.slots = running, slots
        self.slot = slots[0]
        self.dispatcher = Dispatcher(running.gateway, slots)  # type: ignore[arg-type]
        self.thread = threading.Thread(target=self.dispatcher.loop)
        self.thread.start()

    def wait_for_start(self) -> None:
        assert self.slot.started.acquire(timeout=WAIT_LIMIT), "the dispatcher starts nothing"

    def finish(self, *slots: FakeSlot) -> None:
        """End the runs in the dispatcher's own thread, which then finds all of them ended."""

        def finish_all() -> None:
            for slot in slots:
                slot.finish()

        self.dispatcher.call_soon(finish_all)

    def stop(self) -> None:
        self.running.gateway.stopping.set()
        for slot in self.slots:
            slot.may_be_replaced.set()
            slot.finish(100)
        self.running.gateway.work_signal.wake()
        self.thread.join(WAIT_LIMIT)
        assert not self.thread.is_alive()
        self.dispatcher.close()
        for slot in self.slots:
            slot.close()


@contextmanager
def dispatching(site: Site, *slots: FakeSlot) -> Iterator[DispatcherUnderTest]:
    """A dispatcher with these slots, and a plugin `echo`."""
    manifest = "concurrency_safe: true\n" if len(slots) > 1 else ""
    site.plugin("echo", OK, manifest=manifest)
    with site.opened() as running:
        under_test = DispatcherUnderTest(running, slots)
        yield under_test
        under_test.stop()


class Backlog(DispatcherUnderTest):
    """A dispatcher whose slots run the first of `jobs` jobs."""

    slots: list[BufferingSlot]

    def __init__(self, running: Running, slots: Sequence[BufferingSlot], jobs: int) -> None:
        super().__init__(running, slots)
        self.ids = [running.put("echo") for _ in range(jobs)]
        for slot in slots:
            assert slot.started.acquire(timeout=WAIT_LIMIT)

    def statuses(self) -> list[str]:
        return [self.running.job(id)["status"] for id in self.ids]

    def until(self, *statuses: str) -> None:
        until(lambda: self.statuses() == list(statuses))

    def until_buffered(self) -> None:
        until(lambda: all(slot.buffered for slot in self.slots))

    def finish_everything(self) -> None:
        """End runs until no job is left."""

        def is_over() -> bool:
            for slot in self.slots:
                slot.finish()
            return not set(self.statuses()) & {"queued", "running"}

        until(is_over)


@contextmanager
def backlog(site: Site, slots: int, jobs: int) -> Iterator[Backlog]:
    site.plugin("echo", OK, manifest="concurrency_safe: true\n")
    with site.opened() as running:
        under_test = Backlog(running, [BufferingSlot() for _ in range(slots)], jobs)
        yield under_test
        for slot in under_test.slots:
            slot.gives_back = True
        under_test.stop()
