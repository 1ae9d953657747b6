"""What an outbox policy decides: which rows to claim, what to send, and how to judge the result."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

from ductile._fast_dataclass import dataclass
from ductile.core.delivery.retry_policy import DeliveryUpdate
from ductile.core.jobs.trace import TraceContext
from ductile.engine.config.compiled import CompiledConfig
from ductile.store.engines.api import Tx

UNREADABLE = "not sent: its row cannot be read"


@dataclass(frozen=True, slots=True)
class OutboundRequest:
    """One HTTP POST: exactly these bytes to exactly this URL."""

    url: str
    body: bytes
    headers: Mapping[str, str]
    timeout: float
    """Seconds from the start of the DNS lookup to the end of the response."""
    networks: Sequence[str] = ()
    """Private networks that the URL may resolve to."""
    plain_http: bool = False
    """Whether `http://` is allowed."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """How a send ended; `status` is None if there was no HTTP response."""

    status: int | None
    error: str | None = None
    body: bytes = b""
    """At most 64 KiB of the response."""
    local_write: Callable[[Tx], None] | None = None
    """A delivery inside this gateway: it is committed together with the new status of its row."""

    @property
    def is_success(self) -> bool:
        if self.local_write is not None:
            return True
        return self.status is not None and 200 <= self.status < 300


class ClaimedRow(Protocol):
    """A row of an outbox table, as it was claimed."""

    @property
    def id(self) -> int | str: ...

    @property
    def attempts(self) -> int:
        """Number of failed sends."""


RowT = TypeVar("RowT", bound=ClaimedRow)
RowIn = TypeVar("RowIn", bound=ClaimedRow, contravariant=True)


class OutboxStore(Protocol[RowIn]):
    """What the store module of an outbox table provides."""

    def settle(
        self, tx: Tx, claimed: RowIn, owner: str, update: DeliveryUpdate, now: datetime, /
    ) -> bool:
        """Record the result of a send; False if this boot no longer owns the row."""

    def undo_claim(self, tx: Tx, claimed: RowIn, owner: str, /) -> None:
        """Undo the claim of a row that was not sent."""

    def list_claimed(self, tx: Tx, /) -> Mapping[str, Sequence[Any]]:
        """The ids of the claimed rows, by the boot that owns them."""

    def release(self, tx: Tx, owner: str, id: Any = None, /) -> int:
        """Make the rows that this boot has claimed, or one of them, due again; returns how many."""

    def normalize_due_times(
        self, tx: Tx, ids: Sequence[Any], now: datetime, /
    ) -> Mapping[Any, datetime | None]:
        """Rewrite `next_retry_at` in our format; None for a value that could not be parsed."""


class OutboxPolicy(ABC, Generic[RowT]):
    """One kind of outbox. `OutboxWorker` calls it from its own threads."""

    name: str
    """Name of the loop, the logger and the worker."""
    noun: str
    """What a row is called in the log and in failpoints."""
    retry_seconds: Sequence[float]
    """Delay before the next send, by the number of failed sends so far."""
    poll_seconds: float
    """Seconds until the next look if nothing is due: another node may leave rows behind."""
    full_seconds: float
    """Seconds until the next look if rows are due but the rate or concurrency limit is reached."""
    store: OutboxStore[RowT]

    @abstractmethod
    def next_due(self, tx: Tx, config: CompiledConfig, now: datetime) -> datetime | None:
        """When the next row can be claimed; None if there is no outstanding row."""

    @abstractmethod
    def find_odd_times(self, tx: Tx, config: CompiledConfig) -> Sequence[int | str]:
        """Ids of outstanding rows whose `next_retry_at` is not in our format (a batch)."""

    @abstractmethod
    def claim(self, tx: Tx, config: CompiledConfig, owner: str, now: datetime) -> list[RowT]:
        """Claim the due rows that the limits of this kind allow."""

    @abstractmethod
    def build_request(
        self, row: RowT, config: CompiledConfig, now: datetime
    ) -> OutboundRequest | SendResult:
        """The request to send; or, for a row that needs no request, its result."""

    @abstractmethod
    def judge(self, row: RowT, result: SendResult, now: datetime) -> DeliveryUpdate:
        """The new status of the row."""

    def log_fields(self, row: RowT) -> dict[str, int | str]:
        """The fields that identify a row in the log."""
        return {self.noun: row.id}


def trace_header(trace: TraceContext | None, config: CompiledConfig) -> dict[str, str]:
    """The `traceparent` of a request that belongs to a trace."""
    if trace is None or trace.parent_span is None or config.tracing is None:
        return {}
    recorded = config.tracing.sampler.records(trace)
    return {"traceparent": trace.traceparent(trace.parent_span, recorded=recorded)}
