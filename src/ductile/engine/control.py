"""Requests to the main thread from other threads and from signals: stop, reload."""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum, auto
from functools import partial
from types import FrameType

from ductile.clock import Clock
from ductile.errors import DuctileError
from ductile.log import Logger
from ductile.store.access import audit
from ductile.store.access.audit import AuditEntry
from ductile.store.engines.api import Ledger


class ControlRequest(Enum):
    """What a signal or an operator can request of a running gateway."""

    STOP = auto()
    RELOAD = auto()


class ControlQueue:
    """A queue with one reader, which also wakes for signals on any thread.

    A thread that waits for a lock notices a signal only if it arrives during the wait and on that
    thread. A byte in a pipe stays there until it is read.
    """

    def __init__(self) -> None:
        self._queued: deque[ControlRequest] = deque()
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write, False)
        for end in (self._read, self._write):
            weakref.finalize(self, os.close, end)

    def put(self, request: ControlRequest) -> None:
        """May be called from any thread and from a signal handler."""
        self._queued.append(request)
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # The pipe is full, so the reader is awake.

    def get(self) -> ControlRequest:
        """Wait for the next request."""
        while not self._queued:
            os.read(self._read, 4096)
        return self._queued.popleft()

    def handle_signals(self, meanings: Mapping[signal.Signals, ControlRequest]) -> None:
        """Turn these signals into requests; called on the main thread, which is the reader."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, request in meanings.items():
            signal.signal(number, partial(self._handle_signal, request))

    def _handle_signal(
        self, request: ControlRequest, _number: int, _frame: FrameType | None
    ) -> None:
        self.put(request)


@contextmanager
def ignore_interrupts() -> Iterator[None]:
    """Complete the block whatever signal arrives; for a few operations on files.

    A command that has come this far reports its success. Has no effect outside the main thread,
    where no interrupt is delivered.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda _number, _frame: None)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def record_reload(ledger: Ledger, clock: Clock, log: Logger) -> None:
    """Write the audit entry of a reload that a signal has requested; its sender is unknown."""
    entry, now = AuditEntry("signal", "this machine", "config.reload"), clock.now()
    try:
        ledger.write(lambda tx: audit.append(tx, entry, now))
    except DuctileError as error:
        log.error("reloaded, but the audit entry is missing", problem=error.message)
