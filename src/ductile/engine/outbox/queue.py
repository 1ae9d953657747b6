"""What the courier carries, and the queues of the ledger that it is taken from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Generic, Protocol, TypeVar

from ductile.core.delivery.retry_policy import DeliveryStatus, Verdict, after_failure
from ductile.engine.config.compiled import CompiledConfig
from ductile.engine.recovery.dead_nodes import Abandoned
from ductile.errors import LedgerError
from ductile.failpoint import failpoint
from ductile.log import logger
from ductile.record import dataclass
from ductile.store.engines.api import Ledger, Tx

UNREADABLE = "not sent: its row cannot be read"
MEND_EVERY = timedelta(seconds=4)
"""Less than any lane's poll: an idle one mends at every look."""


@dataclass(frozen=True, slots=True)
class OutboundRequest:
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
    refusal: str | None = None
    """Why it is not sent at all."""

    @classmethod
    def unsent(cls, id: str, refusal: str | None = None) -> OutboundRequest:
        return cls(id, "", b"", {}, 0.0, refusal=refusal)


@dataclass(frozen=True, slots=True)
class SendResult:
    """What became of a send; `status` is None where no answer came."""

    status: int | None
    error: str | None = None
    body: bytes = b""
    """At most 64 KiB of the answer."""

    @property
    def delivered(self) -> bool:
        return self.status is not None and 200 <= self.status < 300


class Outbox(Protocol):
    """A queue of parcels in the ledger. Its methods are called from threads of the courier."""

    name: str

    def recover(self) -> None:
        """Called once, before the first claim: what gateways that are no more were sending
        is due again, for nobody knows whether it arrived."""

    def claim(self, now: datetime) -> tuple[Sequence[OutboundRequest], float]:
        """Take what may be sent now, durably; and the seconds until there may be more."""

    def settle(self, parcel: OutboundRequest, answer: SendResult, now: datetime) -> None:
        """Record what became of it; never raises for a parcel that somebody else settled."""

    def give_back(self, parcel: OutboundRequest) -> None:
        """It was not sent after all: it is as if it had not been claimed."""


class Claimed(Protocol):
    """A row of a lane, as it was claimed."""

    @property
    def id(self) -> int | str: ...

    @property
    def attempts(self) -> int:
        """Sends that have failed."""


@dataclass(frozen=True, slots=True)
class Ending:
    """What a send makes of its row."""

    verdict: Verdict
    error: str | None
    also: Callable[[Tx], None] | None = None
    """Is committed with it."""


C = TypeVar("C", bound=Claimed)
In = TypeVar("In", bound=Claimed, contravariant=True)


class Rows(Protocol[In]):
    """What a module of the store does for the lane of its rows."""

    def settle(
        self, tx: Tx, claimed: In, owner: str, verdict: Verdict, error: str | None, now: datetime, /
    ) -> bool:
        """Record what became of a send; False where this boot no longer owns it."""

    def give_back(self, tx: Tx, claimed: In, owner: str, /) -> None:
        """It was not sent: it is as it was before it was claimed."""

    def under_way(self, tx: Tx, /) -> Mapping[str, Sequence[Any]]:
        """The boots that send something now, and the ids of what."""

    def release(self, tx: Tx, owner: str, id: Any = None, /) -> int:
        """What this boot has claimed, or one of it, is due again; how many that is."""

    def mend(self, tx: Tx, ids: Sequence[Any], now: datetime, /) -> Mapping[Any, datetime | None]:
        """Write their times in our form; None is due now, for it could not be read."""


class LedgerOutbox(ABC, Generic[C]):
    """Rows of the ledger as a lane: claimed before they are sent, and settled once. Thread-safe.

    What the ledger has as claimed by us and is not held is due again: so nothing may stay held
    that nobody is going to end.
    """

    name: str
    noun: str
    """What a row is called, in the log and at failpoints."""
    schedule: Sequence[float]
    """Seconds until the next send, by the number of those that failed before."""
    poll: float
    """Seconds until the next look where nothing is due: another node may leave something."""
    soon: float
    """Seconds until the next look where what is due may not be sent yet."""

    def __init__(
        self, rows: Rows[C], ledger: Ledger, compiled: Callable[[], CompiledConfig], owner: str
    ) -> None:
        self._rows: Rows[C] = rows
        self._ledger, self._compiled, self._owner = ledger, compiled, owner
        self._abandoned = Abandoned(ledger, owner, rows.release)
        self._held: dict[str, C] = {}
        """By the ids of their parcels."""
        self._mended: datetime | None = None
        self._log = logger(self.name)

    def recover(self) -> None:
        self._abandoned.recover(self._ledger.read(self._rows.under_way))

    def claim(self, now: datetime) -> tuple[Sequence[OutboundRequest], float]:
        compiled = self._compiled()
        self._mend(compiled, now)
        due, under_way = self._ledger.read(
            lambda tx: (self._due(tx, compiled, now), self._rows.under_way(tx))
        )
        # What a lost node was sending, and what a claim of ours took of which we were not told
        # that it was committed.
        if released := self._abandoned.release(under_way, self._held, now):
            self._log.warning("released what nobody sends", count=released)
            return (), 0.0
        if due is None or due > now:
            return (), self.poll if due is None else min(self.poll, (due - now).total_seconds())
        found = self._ledger.write(lambda tx: self._take(tx, compiled, now))
        failpoint(f"{self.noun}.claimed")
        parcels = [self._packed(claimed, compiled, now) for claimed in found]
        return parcels, 0.0 if found else self.soon

    def _mend(self, compiled: CompiledConfig, now: datetime) -> None:
        """Bring the times that scripts wrote in forms of their own into ours.

        That takes a look at all that is outstanding: every few seconds is enough, however often
        we are woken.
        """
        if self._mended is not None and abs(now - self._mended) < MEND_EVERY:
            return
        self._mended = now
        while self._mend_some(compiled, now):
            pass

    def _mend_some(self, compiled: CompiledConfig, now: datetime) -> bool:
        """Whether there may be more."""
        ids = self._ledger.read(lambda tx: self._foreign(tx, compiled))
        if not ids:
            return False
        mended = self._ledger.write(lambda tx: self._rows.mend(tx, ids, now))
        for id, due in mended.items():
            if due is None:
                why = "its next_retry_at cannot be read"
                self._log.warning(f"a {self.noun} no longer waits", **{self.noun: id}, reason=why)
        return bool(mended)

    def _packed(self, claimed: C, compiled: CompiledConfig, now: datetime) -> OutboundRequest:
        id = str(claimed.id)
        self._held[id] = claimed
        try:
            return self._parcel(claimed, compiled, now)
        except Exception as error:  # noqa: BLE001 - it is this row's alone
            self._log.crash(f"a {self.noun} cannot be read", error, **self._told(claimed))
            return OutboundRequest.unsent(id, UNREADABLE)

    def settle(self, parcel: OutboundRequest, answer: SendResult, now: datetime) -> None:
        failpoint(f"{self.noun}.sent")
        with self._ended(parcel.id) as claimed:
            try:
                self._record(claimed, self._ending(claimed, answer, now), now)
            except LedgerError:
                raise
            except Exception as error:  # noqa: BLE001 - it is this row's alone
                self._log.crash(f"a {self.noun} could not be settled", error, **self._told(claimed))
                verdict = after_failure(claimed.attempts, now, self.schedule)
                self._record(claimed, Ending(verdict, "internal error"), now)

    def _record(self, claimed: C, ending: Ending, now: datetime) -> None:
        verdict, error = ending.verdict, self._compiled().redactor.maybe(ending.error)

        def work(tx: Tx) -> bool:
            recorded = self._rows.settle(tx, claimed, self._owner, verdict, error, now)
            if recorded and ending.also is not None:
                ending.also(tx)
            return recorded

        recorded = self._ledger.write(work)
        failpoint(f"{self.noun}.settled")
        if recorded and error is not None:
            dead = verdict.status is DeliveryStatus.DEAD
            level, what = ("error", "is dead") if dead else ("warn", "failed")
            self._log.log(level, f"a {self.noun} {what}", **self._told(claimed), error=error)

    def give_back(self, parcel: OutboundRequest) -> None:
        with self._ended(parcel.id) as claimed:
            self._ledger.write(lambda tx: self._rows.give_back(tx, claimed, self._owner))

    @contextmanager
    def _ended(self, id: str) -> Iterator[C]:
        """Within it the end of a claim is recorded. Whatever comes of that, it is held no more;
        only where the ledger is to be asked again it still is."""
        try:
            yield self._held[id]
        except LedgerError:
            raise
        except BaseException:
            self._held.pop(id, None)
            raise
        self._held.pop(id, None)

    def _told(self, claimed: C) -> dict[str, int | str]:
        """What the log calls it."""
        return {self.noun: claimed.id}

    @abstractmethod
    def _due(self, tx: Tx, compiled: CompiledConfig, now: datetime) -> datetime | None:
        """When there is something to claim; None where nothing is outstanding."""

    @abstractmethod
    def _foreign(self, tx: Tx, compiled: CompiledConfig) -> Sequence[int | str]:
        """Ids of some that are outstanding, and whose times have to be mended."""

    @abstractmethod
    def _take(self, tx: Tx, compiled: CompiledConfig, now: datetime) -> list[C]:
        """Claim what may be sent now."""

    @abstractmethod
    def _parcel(self, claimed: C, compiled: CompiledConfig, now: datetime) -> OutboundRequest: ...

    @abstractmethod
    def _ending(self, claimed: C, answer: SendResult, now: datetime) -> Ending: ...
