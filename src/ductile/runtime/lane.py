"""What the courier carries, and what it needs of those who give it something to carry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from ductile.record import dataclass


@dataclass(frozen=True, slots=True)
class Parcel:
    """One request to send: exactly these bytes, to exactly this address."""

    id: str
    url: str
    """Empty, nothing leaves the house: all that has to happen happens as it is settled."""
    body: bytes
    headers: Mapping[str, str]
    timeout: float
    """Seconds from the start of the look-up of its host to the end of the answer."""
    networks: Sequence[str] = ()
    """Private networks that it may go to."""
    plain_http: bool = False
    """Whether it may go without TLS."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of a send; `status` is None where no answer came."""

    status: int | None
    error: str | None = None
    body: bytes = b""
    """At most 64 KiB of the answer."""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Lane(Protocol):
    """A queue of parcels in the ledger. Its methods are called from threads of the courier."""

    name: str

    def recover(self) -> None:
        """Called once, before the first claim: what gateways that are no more were sending
        is due again, for nobody knows whether it arrived."""

    def claim(self, now: datetime) -> tuple[Sequence[Parcel], float]:
        """Take what may be sent now, durably; and the seconds until there may be more."""

    def settle(self, parcel: Parcel, answer: Answer, now: datetime) -> None:
        """Record what became of it; never raises for a parcel that somebody else settled."""

    def give_back(self, parcel: Parcel) -> None:
        """It was not sent after all: it is as if it had not been claimed."""
