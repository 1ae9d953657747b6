"""The limit on open connections: a new connection evicts the least useful one."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Protocol

MAX_CONNECTIONS = 512


class ConnectionState(IntEnum):
    """What a connection is doing; the lowest value is evicted first."""

    CLOSING = 0
    """Closed, except for bytes that its client has not read."""
    IDLE = 1
    """Answered; no further request has begun."""
    AWAITING_HEAD = 2
    """The head of a request is incomplete."""
    AWAITING_BODY = 3
    """The body of a request is incomplete."""
    WRITE_BLOCKED = 4
    """The client does not read the response."""
    ACTIVE = 5
    """A request is being served; never evicted."""


class EvictableConnection(Protocol):
    @property
    def state(self) -> ConnectionState: ...

    def evict(self) -> None: ...


class ConnectionLimiter:
    """The open connections of one listener. Used in the event loop only."""

    def __init__(self, max_connections: int = MAX_CONNECTIONS) -> None:
        self.max_connections = max_connections
        # A dict keeps the order: the oldest connection is first.
        self._connections: dict[EvictableConnection, None] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def __iter__(self) -> Iterator[EvictableConnection]:
        return iter(self._connections)

    def admit(self, connection: EvictableConnection) -> bool:
        """Return whether there is room, if need be after evicting another connection."""
        if len(self) >= self.max_connections and not self._evict_one():
            return False
        self._connections[connection] = None
        return True

    def remove(self, connection: EvictableConnection) -> None:
        self._connections.pop(connection, None)

    def _evict_one(self) -> bool:
        candidate = min(self._connections, key=lambda connection: connection.state)
        if candidate.state is ConnectionState.ACTIVE:
            return False
        self.remove(candidate)
        candidate.evict()
        return True
