"""From commits to those who follow: one wake-up of the loop, however many commits."""

from __future__ import annotations

import asyncio

from ductile.engine.notices.bus import NoticeBus

MOST_FOLLOWERS = 100
PAUSE = 0.02
"""Between two looks of a follower, so that a burst is sent in few pieces."""


class Subscribers:
    """Who follows, and the work_signal that wakes them. Lives in the loop, but for `_appended`."""

    def __init__(self, notice_bus: NoticeBus) -> None:
        self.closing = False
        self.followers = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending = False
        self._news = asyncio.Event()
        notice_bus.follow(self._appended)

    def enter(self) -> bool:
        """Whether there is room for one more."""
        if self.closing or self.followers >= MOST_FOLLOWERS:
            return False
        self._loop = asyncio.get_running_loop()
        self.followers += 1
        return True

    def leave(self) -> None:
        self.followers -= 1

    def work_signal(self) -> asyncio.Event:
        """Set when the stream goes on. Take it first, then look, then wait for it."""
        return self._news

    def close(self) -> None:
        self.closing = True
        self._ring()

    def _appended(self) -> None:
        """In the thread that commits or reads."""
        loop = self._loop
        if self._pending or not self.followers or loop is None:
            return
        self._pending = True
        try:
            loop.call_soon_threadsafe(self._ring)
        except RuntimeError:
            self._pending = False  # The loop has ended, and its followers with it.

    def _ring(self) -> None:
        self._pending = False
        rung, self._news = self._news, asyncio.Event()
        rung.set()
