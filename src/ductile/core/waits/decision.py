"""The states of a wait, and how one ends."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from ductile._fast_dataclass import dataclass
from ductile.core.waits.parse import OnTimeout
from ductile.model import Event

MAX_COMMENT = 2000
"""Characters of a comment."""


class WaitStatus(StrEnum):
    WAITING = "waiting"
    APPROVED = "approved"
    REJECTED = "rejected"
    MATCHED = "matched"
    """Its event has arrived."""
    ELAPSED = "elapsed"
    """Its time has come."""
    EXPIRED = "expired"
    """Its timeout has passed."""
    CANCELLED = "cancelled"
    """Its job was cancelled."""


@dataclass(frozen=True, slots=True)
class OpenWait:
    """A wait that has not ended, as its row describes it."""

    id: str
    kind: str
    since: datetime
    title: str = ""
    event_type: str | None = None
    on_timeout: str = OnTimeout.FAIL


@dataclass(frozen=True, slots=True)
class WaitEnd:
    """How a wait ends, and by whom."""

    status: WaitStatus
    at: datetime
    by: str | None = None
    """The token, the local user or the link that decided."""
    comment: str | None = None
    event: Event | None = None
    """The event that ended it."""
