"""The notice bus: a ring of recent notices, followers, and callbacks by job or instance id."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from ductile.core.jobs.state_machine import ENDED
from ductile.store.engines.api import BEGINNING, Position, StoredNotice

RING_NOTICES = 10_000
RING_BYTES = 64 * 1024 * 1024
"""Maximum size of all payloads: those of agents may be large."""
_END_TYPES = frozenset(f"job.{status}" for status in ENDED) | {
    "pipeline.ended",
    "pipeline.failed",
    "pipeline.skipped",
}


class NoticeBus:
    """Thread-safe. Callbacks run on the committing thread and must not block."""

    def __init__(self) -> None:
        self._ring: deque[StoredNotice] = deque()
        self._bytes = 0
        self._floor = BEGINNING
        """The ring contains exactly the notices after this position."""
        self._lock = threading.Lock()
        self._on_end: dict[str, list[Callable[[], None]]] = {}
        self._commit_watchers: list[Callable[[list[StoredNotice]], None]] = []
        self._followers: list[tuple[Callable[[], None], Callable[[], bool]]] = []
        self.on_followed: Callable[[], None] = lambda: None
        """Called when a follower or a waiting caller comes; must not block."""

    def start(self, floor: Position) -> None:
        """Set the position of the stream before anything is appended."""
        self._floor = floor

    def publish_commit(self, notices: list[StoredNotice]) -> None:
        """Handle notices of a commit of this node; their place in the stream may be unknown."""
        self._call_on_end(notices)
        for watcher in self._commit_watchers:
            watcher(notices)

    def append(self, notices: list[StoredNotice]) -> None:
        """Append the next notices of the stream, from any node."""
        with self._lock:
            self._ring.extend(notices)
            self._bytes += sum(len(notice.payload) for notice in notices)
            while len(self._ring) > RING_NOTICES or self._bytes > RING_BYTES:
                passed = self._ring.popleft()
                self._bytes -= len(passed.payload)
                self._floor = passed.position
        self._call_on_end(notices)
        self._call_followers()

    @property
    def is_followed(self) -> bool:
        """Whether the whole stream is of use: it has a follower, or a caller waits for an end."""
        return bool(self._on_end) or any(is_active() for _, is_active in self._followers)

    def skip_to(self, position: Position) -> bool:
        """Continue the stream after `position`; False if it is followed, and nothing is skipped.

        A follower or waiting caller that comes later reads the ledger first, and finds there what
        was skipped.
        """
        with self._lock:
            if self.is_followed:
                return False
            self._ring.clear()
            self._bytes = 0
            self._floor = position
        # One that has come in between has read the ring before the skip: it looks again.
        self._call_followers()
        return True

    def _call_followers(self) -> None:
        for follower, _ in self._followers:
            follower()

    def _call_on_end(self, notices: list[StoredNotice]) -> None:
        if not self._on_end:
            return
        with self._lock:
            called = [
                callback
                for notice in notices
                if notice.type in _END_TYPES and notice.job_id is not None
                for callback in self._on_end.pop(notice.job_id, ())
            ]
        for callback in called:
            callback()

    def watch(self, watcher: Callable[[list[StoredNotice]], None]) -> None:
        """Call `watcher` with the notices of each commit of this node."""
        self._commit_watchers.append(watcher)

    def follow(self, follower: Callable[[], None], is_active: Callable[[], bool]) -> None:
        """Call `follower` when the stream has new notices; `is_active`: whether it reads them."""
        self._followers.append((follower, is_active))

    def read_since(self, position: Position) -> list[StoredNotice] | None:
        """The notices after `position`; None if the ring no longer contains all of them."""
        with self._lock:
            if position < self._floor:
                return None
            behind = takewhile(lambda notice: notice.position > position, reversed(self._ring))
            found = list(behind)
        return found[::-1]

    def add_on_end(self, job_id: str, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the job ends. Register first, then read the ledger."""
        with self._lock:
            self._on_end.setdefault(job_id, []).append(callback)
        self.on_followed()

    def remove_on_end(self, job_id: str, callback: Callable[[], None]) -> None:
        with self._lock:
            callbacks = self._on_end.get(job_id, [])
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks:
                self._on_end.pop(job_id, None)
