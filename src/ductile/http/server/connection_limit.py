"""The connections of one door: a bounded number, so that whoever fills one door shuts no other."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

MOST_CONNECTIONS = 512


class ConnectionState(IntEnum):
    """What a connection is doing; the less, the sooner it gives way to a new one."""

    LEAVING = 0
    """Closed, but for what its client has not read."""
    IDLE = 1
    """It has had its answer, and has not asked again."""
    HEADLESS = 2
    """It has yet to say what it wants."""
    BODILESS = 3
    """The rest of its body is waited for."""
    UNREAD = 4
    """Its client leaves the answer unread."""
    AT_WORK = 5
    """It is never sent away."""


class TrackedConnection(Protocol):
    @property
    def standing(self) -> ConnectionState: ...

    def give_way(self) -> None: ...


class ConnectionLimiter:
    """Lives in the loop."""

    def __init__(self, most: int = MOST_CONNECTIONS) -> None:
        self.most = most
        # A dict, for its order: the oldest is the first.
        self._guests: dict[TrackedConnection, None] = {}

    def __len__(self) -> int:
        return len(self._guests)

    def enter(self, guest: TrackedConnection) -> bool:
        """Whether there is a place, be it that of another who gives way."""
        if len(self) >= self.most and not self._make_way():
            return False
        self._guests[guest] = None
        return True

    def leave(self, guest: TrackedConnection) -> None:
        self._guests.pop(guest, None)

    def _make_way(self) -> bool:
        weakest = min(self._guests, key=lambda guest: guest.standing)
        if weakest.standing is ConnectionState.AT_WORK:
            return False
        self.leave(weakest)
        weakest.give_way()
        return True
