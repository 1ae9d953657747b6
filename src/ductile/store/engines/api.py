"""The contract that both engines keep, and what travels out of a transaction.

A transaction is a function of a `Tx`. It must be re-runnable: ids, times and chance come in
as arguments, and it touches nothing but its `Tx`, because an engine may have to run it again
(a batch that was lost to a full disk, a deadlock). What must happen after the commit is
recorded in `tx.effects` and handed to the listeners once, after the commit is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

T = TypeVar("T")
Row = tuple[Any, ...]


class Position(NamedTuple):
    """Where a notice stands in the stream: whatever commits later stands behind it."""

    xact: int
    """The transaction that wrote it, where several write at once and ids alone tell no order."""
    id: int

    def __str__(self) -> str:
        return f"{self.xact}-{self.id}" if self.xact else str(self.id)


BEGINNING = Position(0, 0)


class StoredNotice(NamedTuple):
    id: int
    topic: str
    type: str
    job_id: str | None
    payload: str
    created_at: str
    xact: int = 0

    @property
    def position(self) -> Position:
        return Position(self.xact, self.id)


class Drop(NamedTuple):
    """A job that was not made, for another of its dedupe key makes it needless."""

    plugin: str
    command: str
    dedupe_key: str
    submitted_by: str
    existing_job_id: str


@dataclass(slots=True)
class Effects:
    """What committed transactions ask of the loops around the ledger."""

    ready: int = 0
    """How many jobs became ready: as many workers are worth waking."""
    retry_at: datetime | None = None
    """The earliest retry that was scheduled."""
    relays: int = 0
    """How many messages for other gateways have come, or come free."""
    deliveries: int = 0
    """How many deliveries of webhooks wait for another time than before."""
    drops: list[Drop] = field(default_factory=list)
    notices: list[StoredNotice] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        told = self.ready or self.relays or self.deliveries or self.drops or self.notices
        return bool(told) or self.retry_at is not None

    def merge(self, other: Effects) -> None:
        self.ready += other.ready
        self.relays += other.relays
        self.deliveries += other.deliveries
        if other.retry_at is not None:
            self.retry_later(other.retry_at)
        self.drops += other.drops
        self.notices += other.notices

    def retry_later(self, moment: datetime) -> None:
        if self.retry_at is None or moment < self.retry_at:
            self.retry_at = moment


class Tx(Protocol):
    """One transaction. Queries are named; see `sql/`."""

    effects: Effects

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Every row."""

    def one(self, query: str, /, **values: object) -> Row | None:
        """The first row."""

    def run(self, query: str, /, **values: object) -> int:
        """How many rows were changed."""

    def insert(self, query: str, /, **values: object) -> int:
        """The `id` of the new row, of a query that ends in `@returning_id@`."""

    def dicts(self, query: str, /, **values: object) -> list[dict[str, Any]]:
        """Every row, by column name."""

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:
        """Serialise transactions that hold the same (kind, name), until this one ends.

        Says whether it is held; with `wait` it always is. An engine with one writer holds
        everything already.
        """


Work = Callable[[Tx], T]
Done = Callable[[T | None, BaseException | None], None]
Listener = Callable[[Effects], None]


class Ledger(Protocol):
    engine: str
    at_once: int
    """How many settlements are better made in one transaction than side by side."""

    def start(self) -> None:
        """Bring the schema forward, then take transactions."""

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return once it is durable."""

    def submit(self, work: Work[T], done: Done[T]) -> None:
        """As `write`, without waiting: `done` is called once it is durable, by any thread."""

    def carry(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Submit several, each a transaction of its own, by a thread that may be kept busy.

        `done` is called by this thread, before this returns, or by another at any time.
        """

    def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot; it must not change anything."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each commit that had effects.

        In the order of the commits where nobody but this process writes; see `follow`.
        """

    def follow(self, ear: Callable[[], bool]) -> bool:
        """Have `ear` called, in a thread of the ledger's, when anybody may have posted notices.

        It answers whether it wants to be called again soon. False is returned where nobody but
        this process writes: `listen` tells it all then, in order.
        """

    def claim_boot(self, boot: str) -> None:
        """Hold this boot id for as long as the ledger is open."""

    def boot_is_dead(self, boot: str) -> bool:
        """Whether no living gateway holds this boot id."""

    def tidy(self) -> bool:
        """Give a little freed space back; whether there is more of it."""

    def examine(
        self, seconds: float | None, beat: Callable[[], None]
    ) -> tuple[list[tuple[str, str, str]], bool]:
        """What is wrong below the rows, and whether all was looked at in this time.

        Each: the broken promise (`pages`, `references`), what breaks it, and how. `beat` is
        called now and then; it ends the examination by raising.
        """

    def backup(self, target: Path, watch: Callable[[int, int], None]) -> None:
        """Copy the ledger as it is now into the empty file `target`: a SQLite ledger.

        `watch` is told what is done and what there is to do; it ends the copy by raising.
        """

    def health(self) -> Mapping[str, object]:
        """Facts for `status` and metrics."""

    def hang_up(self) -> None:
        """Wait no longer for a server that does not answer: whoever does gets a `LedgerError`.

        From any thread. What it was told last may be committed or not; nothing more is.
        """

    def close(self) -> None: ...
