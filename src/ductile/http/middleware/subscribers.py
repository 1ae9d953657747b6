"""Subscribers of the event stream: many commits wake the event loop once."""

from __future__ import annotations

import asyncio

from ductile.engine.ingress.authenticator import Principal
from ductile.engine.notices.bus import NoticeBus
from ductile.errors import DuctileError
from ductile.http.middleware.caller_limit import CallerLimit

MAX_SUBSCRIBERS = 100
BATCH_INTERVAL = 0.02
"""Seconds between two reads of a subscriber, so that a burst is sent in few pieces."""


class TooManySubscribers(DuctileError):
    code = "too_many_followers"
    http_status = 503


class Subscribers:
    """Counts the subscribers and wakes them. Used in the event loop, except `_on_append`."""

    def __init__(self, notice_bus: NoticeBus) -> None:
        self.closing = False
        self.limit = CallerLimit(MAX_SUBSCRIBERS, "event streams", TooManySubscribers)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pending = False
        self._changed = asyncio.Event()
        self._notice_bus = notice_bus
        notice_bus.follow(self._on_append, lambda: self.count > 0)

    @property
    def count(self) -> int:
        return self.limit.count

    def enter(self, principal: Principal) -> None:
        """Count a subscriber; raises the errors of `CallerLimit` if there is no room for it."""
        if self.closing:
            raise TooManySubscribers("the gateway is stopping")
        self.limit.enter(principal)
        self._loop = asyncio.get_running_loop()
        self._notice_bus.on_followed()

    def leave(self, principal: Principal) -> None:
        self.limit.leave(principal)

    def changed(self) -> asyncio.Event:
        """Return an event that is set at the next notice. Take it, then read, then wait."""
        return self._changed

    def close(self) -> None:
        self.closing = True
        self.wake()

    def _on_append(self) -> None:
        """Called in the thread that commits or reads notices."""
        loop = self._loop
        if self._pending or not self.count or loop is None:
            return
        self._pending = True
        try:
            loop.call_soon_threadsafe(self.wake)
        except RuntimeError:
            self._pending = False  # The loop has ended, and its subscribers with it.

    def wake(self) -> None:
        """Have every subscriber look for notices and check its access."""
        self._pending = False
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
