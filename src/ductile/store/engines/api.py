"""The contract of both engines, and what a transaction reports after its commit.

A transaction is a function of a `Tx`. An engine may have to run it again (after a deadlock, or a
batch that failed on a full disk), so it must be re-runnable: ids, times and random values are
arguments, and it changes nothing but its `Tx`. What must happen after the commit is recorded in
`tx.effects` and passed to the listeners once, when the commit is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from ductile._fast_dataclass import dataclass

T = TypeVar("T")
Row = tuple[Any, ...]


class Position(NamedTuple):
    """The position of a notice in the stream: notices that commit later have a greater one."""

    xact: int
    """The transaction that wrote it, on an engine where ids are not in the order of commits."""
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

    def insert_values(self, plugin: str | None) -> dict[str, object]:
        """The values of the query `insert_notice`."""
        return {
            "topic": self.topic,
            "type": self.type,
            "job_id": self.job_id,
            "plugin": plugin,
            "payload": self.payload,
            "now": self.created_at,
        }


class DedupeDrop(NamedTuple):
    """A job that was not enqueued, because another one has its dedupe key."""

    plugin: str
    command: str
    dedupe_key: str
    submitted_by: str
    existing_job_id: str


@dataclass(slots=True)
class Effects:
    """What the committed transactions mean for the loops around the ledger."""

    ready: int = 0
    """Jobs that became ready, which is how many workers are worth waking."""
    retry_at: datetime | None = None
    """The earliest retry that was scheduled."""
    relays: int = 0
    """Relayed events that were enqueued or released."""
    deliveries: int = 0
    """Webhook deliveries whose due time changed."""
    pauses: int = 0
    """Pauses that were stored or ended."""
    ready_any: bool = False
    """Whether any number of queued jobs may have become ready."""
    waits: int = 0
    """Waits that began and that a time ends."""
    requests: int = 0
    """Requests to nodes."""
    contacts: int = 0
    """Contacts of agents."""
    opens_at: datetime | None = None
    """When the first job may start that a rate limit or a closed limit key holds."""
    drops: list[DedupeDrop] = field(default_factory=list)
    notices: list[StoredNotice] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether there is anything to report."""
        counts = self.ready or self.relays or self.deliveries or self.waits
        counts = counts or self.pauses or self.ready_any or self.requests or self.contacts
        times = self.retry_at is not None or self.opens_at is not None
        return bool(counts or self.drops or self.notices) or times

    def merge(self, other: Effects) -> None:
        self.ready += other.ready
        self.relays += other.relays
        self.deliveries += other.deliveries
        self.pauses += other.pauses
        self.ready_any = self.ready_any or other.ready_any
        self.waits += other.waits
        self.requests += other.requests
        self.contacts += other.contacts
        if other.retry_at is not None:
            self.add_retry(other.retry_at)
        if other.opens_at is not None:
            self.add_opening(other.opens_at)
        self.drops += other.drops
        self.notices += other.notices

    def add_opening(self, moment: datetime) -> None:
        if self.opens_at is None or moment < self.opens_at:
            self.opens_at = moment

    def add_retry(self, moment: datetime) -> None:
        if self.retry_at is None or moment < self.retry_at:
            self.retry_at = moment


class Tx(Protocol):
    """One transaction. It runs queries by name; they are in `store/sql/`."""

    effects: Effects

    def all(self, query: str, /, **values: object) -> list[Row]:
        """Return every row."""

    def one(self, query: str, /, **values: object) -> Row | None:
        """Return the first row."""

    def run(self, query: str, /, **values: object) -> int:
        """Return the number of changed rows."""

    def insert(self, query: str, /, **values: object) -> int:
        """Return the `id` of the new row; the query ends in `@returning_id@`."""

    def append(self, query: str, /, **values: object) -> None:
        """Insert a row by an `INSERT` whose values are parameters and literals.

        It may be written later, together with others: before a query of this transaction that
        could see it, or at the commit.
        """

    def post(self, notice: StoredNotice, plugin: str | None) -> None:
        """As `append`, for a notice; with its id it becomes one of the effects."""

    def write_rows(self) -> None:
        """Write what was appended now, so that its error appears here."""

    def update_each(self, query: str, rows: Sequence[Mapping[str, Any]]) -> frozenset[str]:
        """Run a query that changes the row with the `id` once per `rows`; returns the changed ids.

        The ids differ. An engine may run one statement for all of them.
        """

    def dicts(self, query: str, /, **values: object) -> list[dict[str, Any]]:
        """Return every row, by column name."""

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:
        """Hold the lock (kind, name) until the transaction ends; with `wait`, wait for it.

        Returns whether it is held. An engine with a single writer needs no such locks.
        """


INSERT_NOTICE = "insert_notice"


class AppendedRows:
    """The rows of a transaction that are not written yet, by the query that writes them."""

    def __init__(self) -> None:
        self.effects = Effects()
        self._rows: dict[str, list[dict[str, Any]]] = {}
        self._notices: list[StoredNotice] = []
        """The notices among them, without their ids."""

    def append(self, query: str, /, **values: Any) -> None:
        self._add(query, values)

    def post(self, notice: StoredNotice, plugin: str | None) -> None:
        self._notices.append(notice)
        self._add(INSERT_NOTICE, notice.insert_values(plugin))

    def _add(self, query: str, values: dict[str, Any]) -> None:
        self._rows.setdefault(query, []).append(values)


Work = Callable[[Tx], T]
"""A transaction. A class of them may have a static method `run_together(tx, works)`, which returns
their results: an engine may run it in the place of several transactions that follow each other."""
Done = Callable[[T | None, BaseException | None], None]
Listener = Callable[[Effects], None]


class NodeNews(StrEnum):
    """What nodes notify each other of; one wake-up may have several."""

    NOTICES = "n"
    READY = "r"
    """Jobs that the sender cannot start now."""
    REQUESTS = "q"
    """Requests to nodes."""
    FOLLOWS = "f"
    """The sender follows the stream of notices."""


class NewsReader(Protocol):
    """The part of a node that other nodes wake, in a thread of the ledger."""

    def is_followed(self) -> bool:
        """Whether the stream of notices is of use here."""

    def read_notices(self) -> bool:
        """Read new notices; returns whether it wants to be called again soon."""

    def on_ready(self) -> None:
        """Another node has jobs that it cannot start now."""

    def on_requests(self) -> None:
        """There are requests to nodes."""


class Ledger(Protocol):
    engine: str
    waiting_migration: str | None
    """The migration that is not applied yet, and the older nodes that it waits for."""
    batch_size: int
    """How many settlements, and claims, one transaction should have at most."""

    def start(self) -> None:
        """Migrate the schema, then accept transactions."""

    def write(self, work: Work[T]) -> T:
        """Run `work` in a transaction and return once it is durable."""

    def submit(self, work: Work[T], done: Done[T]) -> None:
        """As `write`, without waiting: any thread calls `done` once it is durable."""

    def write_batch(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Submit several transactions; the calling thread may be used to commit them.

        `done` is called by this thread before this returns, or by another thread at any time.
        """

    def read(self, work: Work[T]) -> T:
        """Run `work` on one snapshot; it must not change anything."""

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each commit that had effects.

        The calls are in the order of the commits if only this process writes; see
        `watch_nodes`.
        """

    def migrate(self) -> None:
        """Apply the migrations that waited for older nodes, if those have ended."""

    def watch_nodes(self, reader: NewsReader) -> bool:
        """Call `reader`, in a thread of the ledger, when another process may have news.

        Returns False if only this process writes: then `listen` reports every notice in order.
        """

    def tell_nodes(self, news: NodeNews) -> None:
        """Wake the other nodes soon."""

    def follow_notices(self) -> None:
        """Have the other nodes wake this one for notices, as long as its reader is followed."""

    def claim_boot(self, boot: str) -> None:
        """Hold this boot id for as long as the ledger is open."""

    def write_as_boot(self, work: Work[T]) -> T:
        """Commit a short transaction after `claim_boot`, without waiting for slow ones to end."""

    def boot_is_dead(self, boot: str) -> bool:
        """Whether no living gateway holds this boot id."""

    def end_sessions(self, boot: str) -> int:
        """End the database sessions of another node that does not answer; returns how many."""

    def vacuum(self) -> bool:
        """Return a little free space to the file system; whether there is more."""

    def check_integrity(
        self, seconds: float | None, on_tick: Callable[[], None]
    ) -> tuple[list[tuple[str, str, str]], bool]:
        """Check what is below the rows; also returns whether everything was checked in time.

        Each finding has the violated invariant (`pages`, `references`), its subject and a
        description. `on_tick` is called regularly, and ends the check by raising.
        """

    def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        """Copy the current ledger into the empty file `target`, as a SQLite ledger.

        `progress` receives the amount that is done and the total; it ends the copy by raising.
        """

    def check_files(self) -> None:
        """Raise `LedgerMoved` if the open files are no longer those at the ledger's path.

        Does nothing on an engine without files of its own.
        """

    def health(self) -> Mapping[str, object]:
        """Figures for `status` and metrics."""

    def abort_connections(self) -> None:
        """Stop waiting for a server that does not answer: waiting calls raise `LedgerError`.

        May be called from any thread. The transactions that were under way may be committed or
        not; no further ones will be.
        """

    def close(self) -> None: ...
