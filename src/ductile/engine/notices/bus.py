"""From commits to whoever waits: the notices' ring, and callbacks by job or instance id."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from ductile.core.jobs.state_machine import ENDED
from ductile.store.engines.api import BEGINNING, Position, StoredNotice

RING = 10_000
RING_BYTES = 64 * 1024 * 1024
"""Of payloads: an agent's may be large."""
_ENDS = frozenset(f"job.{status}" for status in ENDED) | {
    "pipeline.ended",
    "pipeline.failed",
    "pipeline.skipped",
}


class NoticeBus:
    """Thread-safe. Callbacks run in the committing thread: they must not block."""

    def __init__(self) -> None:
        self._ring: deque[StoredNotice] = deque()
        self._bytes = 0
        self._floor = BEGINNING
        """The ring holds all that stands behind this, and nothing else."""
        self._lock = threading.Lock()
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._watching: list[Callable[[list[StoredNotice]], None]] = []
        self._following: list[Callable[[], None]] = []
        self._heeding: dict[str, Callable[[StoredNotice], None]] = {}

    def start(self, floor: Position) -> None:
        """Where the stream stands before anything is appended."""
        self._floor = floor

    def committed(self, notices: list[StoredNotice]) -> None:
        """This node has committed these; they may not have their place in the stream yet."""
        self._wake(notices)
        for watcher in self._watching:
            watcher(notices)

    def append(self, notices: list[StoredNotice]) -> None:
        """These come next in the stream, whoever has committed them."""
        with self._lock:
            self._ring.extend(notices)
            self._bytes += sum(len(notice.payload) for notice in notices)
            while len(self._ring) > RING or self._bytes > RING_BYTES:
                passed = self._ring.popleft()
                self._bytes -= len(passed.payload)
                self._floor = passed.position
        self._wake(notices)
        for follower in self._following:
            follower()
        for notice in notices:
            if heed := self._heeding.get(notice.type):
                heed(notice)

    def _wake(self, notices: list[StoredNotice]) -> None:
        if not self._waiting:
            return
        with self._lock:
            called = [
                callback
                for notice in notices
                if notice.type in _ENDS and notice.job_id is not None
                for callback in self._waiting.pop(notice.job_id, ())
            ]
        for callback in called:
            callback()

    def watch(self, watcher: Callable[[list[StoredNotice]], None]) -> None:
        """Call `watcher` after each commit of this node, with its notices."""
        self._watching.append(watcher)

    def follow(self, follower: Callable[[], None]) -> None:
        """Call `follower` when the stream goes on."""
        self._following.append(follower)

    def heed(self, type: str, heed: Callable[[StoredNotice], None]) -> None:
        """Call `heed` with each notice of this type that the stream comes to."""
        self._heeding[type] = heed

    def since(self, position: Position) -> list[StoredNotice] | None:
        """The stream behind `position`; None where the ring does not reach back so far."""
        with self._lock:
            if position < self._floor:
                return None
            behind = takewhile(lambda notice: notice.position > position, reversed(self._ring))
            found = list(behind)
        return found[::-1]

    def when_ended(self, job_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the job ends. Register first, then read the ledger."""
        with self._lock:
            self._waiting.setdefault(job_id, []).append(callback)

    def forget(self, job_id: str, callback: Callable[[], None]) -> None:
        with self._lock:
            callbacks = self._waiting.get(job_id, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._waiting.pop(job_id, None)
