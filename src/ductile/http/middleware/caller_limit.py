"""The limit on requests that stay open: waits for a job, and event streams.

Such a request occupies a connection that is never evicted. One token must not take all places, and
some are kept for administrators and for the local socket, so that an operator can always look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from ductile.core.values.scopes import ALL
from ductile.engine.ingress.authenticator import LOCAL, Principal
from ductile.errors import DuctileError

SHARE_OF_A_TOKEN = 0.25
SHARE_OF_TOKENS = 0.8
"""Of all places; the rest is for administrators and the local socket."""
SHARE_OF_ADMINISTRATORS = 0.9
"""Of all places, those of other tokens included; the rest is for the local socket."""


class TooManyOpenRequests(DuctileError):
    """The caller itself has too many; other callers are still served."""

    code = "too_many_open_requests"
    http_status = 429


class CallerLimit:
    """Counts the open requests of each caller. Used in the event loop only."""

    def __init__(self, places: int, noun: str, full: type[DuctileError]) -> None:
        """`noun` names the requests in errors; `full` is raised if there is no place left."""
        self.places = places
        self._noun, self._full = noun, full
        self._held: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return self._held.total()

    def enter(self, principal: Principal) -> None:
        """Take a place; raises `TooManyOpenRequests`, or that all places are taken."""
        share = 1.0
        if principal.id != LOCAL.id:
            share = SHARE_OF_ADMINISTRATORS if ALL in principal.scopes else SHARE_OF_TOKENS
            if self._held[principal.id] >= self._round(SHARE_OF_A_TOKEN):
                raise TooManyOpenRequests(f"this token has too many open {self._noun}")
        if self.count >= self._round(share):
            raise self._full(f"too many {self._noun}; try again later")
        self._held[principal.id] += 1

    def leave(self, principal: Principal) -> None:
        self._held[principal.id] -= 1
        if not self._held[principal.id]:
            del self._held[principal.id]

    @contextmanager
    def place(self, principal: Principal) -> Iterator[None]:
        self.enter(principal)
        try:
            yield
        finally:
            self.leave(principal)

    def _round(self, share: float) -> int:
        return max(int(self.places * share), 1)
