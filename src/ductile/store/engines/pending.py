"""A transaction that was handed over, whoever waits for it, and whoever is told of it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from ductile.store.engines.api import Done, Effects, Listener, Work


def announce(effects: Effects, listeners: Iterable[Listener]) -> None:
    """Tell what a commit has changed; that it is durable is not for a listener to undo."""
    if effects:
        for listener in listeners:
            without_fail(listener, effects)


def without_fail(call: Callable[..., None], *arguments: object) -> None:
    """A listener's bug, or a caller that is gone, must not end the writer; it is shown."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001
        sys.excepthook(type(error), error, error.__traceback__)


class Pending:
    """A transaction on its way to its commit."""

    __slots__ = ("committed", "done", "effects", "error", "result", "work")

    def __init__(self, work: Work[Any], done: Done[Any]) -> None:
        self.work = work
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.effects: Effects | None = None
        self.committed = False

    def settle(self) -> None:
        self.done(self.result, self.error)


class Latch:
    """Holds a caller back until its transaction is durable."""

    __slots__ = ("_lock", "error", "result")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()
        self.result: Any = None
        self.error: BaseException | None = None

    def release(self, result: Any, error: BaseException | None) -> None:
        self.result, self.error = result, error
        self._lock.release()

    def wait(self) -> Any:
        self._lock.acquire()
        if self.error is not None:
            raise self.error
        return self.result
