"""What is asked of the main thread, by other threads and by signals."""

from __future__ import annotations

import os
import signal
import weakref
from collections import deque
from collections.abc import Mapping
from enum import Enum, auto
from functools import partial
from types import FrameType


class Request(Enum):
    """What a signal or an operator may ask of a running gateway."""

    STOP = auto()
    RELOAD = auto()


class Requests:
    """A queue for one reader, whom a signal wakes as well, whichever thread the system chose.

    Who waits for a lock hears of a signal only if it comes during the wait, and to that thread. A
    byte in a pipe stays there until it is read.
    """

    def __init__(self) -> None:
        self._waiting: deque[Request] = deque()
        self._read, self._write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._write, False)
        for end in (self._read, self._write):
            weakref.finalize(self, os.close, end)

    def put(self, request: Request) -> None:
        """From any thread, or from a signal handler."""
        self._waiting.append(request)
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # Who has that much to read is awake.

    def get(self) -> Request:
        """The next one, once there is one."""
        while not self._waiting:
            os.read(self._read, 4096)
        return self._waiting.popleft()

    def take_signals(self, meanings: Mapping[signal.Signals, Request]) -> None:
        """Have these signals put what they mean; for the main thread, which is then the reader."""
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for number, request in meanings.items():
            signal.signal(number, partial(self._signalled, request))

    def _signalled(self, request: Request, _number: int, _frame: FrameType | None) -> None:
        self.put(request)
