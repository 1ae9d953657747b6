"""Submitted transactions on their way to a commit: the queue, and what their callers wait on.

A thread that commits transactions of its own takes the queued ones along. While such commits
follow each other closely, the writer thread is not woken for every transaction: it only checks at
short intervals whether one was left in the queue.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from ductile.store.engines.api import Done, Effects, Listener, Tx, Work

CHECK_INTERVAL = 0.001
"""Seconds between two checks; also how long a transaction waits to be taken along. Workers may be
idle meanwhile."""
COMMITS_STOPPED = 0.01
"""Seconds without a commit by another thread after which the writer stops relying on them."""


def notify_listeners(effects: Effects, listeners: Iterable[Listener]) -> None:
    """Report what a commit has changed. The commit is durable, whatever a listener raises."""
    if effects:
        for listener in listeners:
            call_safely(listener, effects)


def call_safely(call: Callable[..., None], *arguments: object) -> None:
    """Report an exception through `sys.excepthook`, because it must not end the writer."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001
        sys.excepthook(type(error), error, error.__traceback__)


class PendingWrite:
    """A submitted transaction, its result, and the callback that receives it."""

    __slots__ = ("committed", "done", "effects", "error", "result", "work")

    def __init__(self, work: Work[Any], done: Done[Any]) -> None:
        self.work = work
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.effects: Effects | None = None
        self.committed = False

    def report(self) -> None:
        """Pass the result or the error to the caller."""
        self.done(self.result, self.error)


def run_batch(tx: Tx, batch: Iterable[PendingWrite]) -> None:
    """Run transactions as one; those that offer it together."""
    for run_together, group in groupby(batch, _find_run_together):
        pendings = list(group)
        if run_together is None:
            for pending in pendings:
                pending.result = pending.work(tx)
            continue
        results = run_together(tx, [pending.work for pending in pendings])
        for pending, result in zip(pendings, results, strict=True):
            pending.result = result


def _find_run_together(pending: PendingWrite) -> Callable[[Tx, list[Any]], list[Any]] | None:
    return getattr(pending.work, "run_together", None)


class CommitLatch:
    """Blocks a caller until its transaction is durable."""

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


class WriteQueue:
    """Filled by any thread, emptied by the thread that commits."""

    def __init__(self) -> None:
        self._waiting: deque[PendingWrite] = deque()
        self._oldest_at = 0.0
        """When the oldest entry was added."""
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._wakeup_sent = self._checking = self._closed = False
        self._other_commit_at, self._last_taken = 0.0, 0

    def put(self, pending: PendingWrite) -> None:
        if not self._waiting:
            self._oldest_at = time.monotonic()
        self._waiting.append(pending)
        # After the append: a writer that stops checking, or is woken, looks at the queue again.
        if not self._checking:
            self._wake_writer()

    def take(self, limit: int, *, by_writer: bool = True) -> list[PendingWrite]:
        """Remove and return up to `limit` entries, oldest first."""
        found: list[PendingWrite] = []
        try:
            while len(found) < limit:
                found.append(self._waiting.popleft())
        except IndexError:
            pass
        self._last_taken = len(found)
        if not by_writer:
            self._other_commit_at = time.monotonic()
        return found

    def wait(self) -> bool:
        """Block the writer until there is something to commit; False once the queue is closed."""
        while not self._closed:
            self._checking = self._is_emptied_by_others()
            if not self._waiting:
                self._sleep(CHECK_INTERVAL if self._checking else None)
                continue
            left = self._oldest_at + CHECK_INTERVAL - time.monotonic()
            if not self._checking or left <= 0:
                return True
            self._sleep(left)
        return bool(self._waiting)

    def close(self) -> None:
        """Wake the writer, which commits what is queued and then ends."""
        self._closed = True
        self._wake_writer()

    def _is_emptied_by_others(self) -> bool:
        """A single queued transaction is not delayed: it is committed at once, on its own."""
        recent = time.monotonic() - self._other_commit_at < COMMITS_STOPPED
        return self._last_taken > 1 and recent

    def _wake_writer(self) -> None:
        if not self._wakeup_sent:
            self._wakeup_sent = True
            self._wakeups.put(None)

    def _sleep(self, seconds: float | None) -> None:
        try:
            self._wakeups.get(timeout=seconds)
        except queue.Empty:
            return
        self._wakeup_sent = False
