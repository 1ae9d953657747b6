"""The ledger on SQLite: one connection writes, what has gathered is committed together.

WAL with synchronous=FULL: an acknowledgement follows the fsync. Each transaction of a batch
has a savepoint of its own, so that one that fails takes nobody with it.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ductile.errors import LedgerBroken, LedgerBusy, LedgerError, LedgerFull
from ductile.failpoint import failpoint
from ductile.store import queries
from ductile.store.ledger import Effects, Listener, Row, Tx, Work
from ductile.store.migrate import Migration, migrate

T = TypeVar("T")
BUSY_TIMEOUT_MS = 5_000
LARGEST_BATCH = 256
WAL_BYTES_KEPT = 16 * 1024 * 1024
CHECKPOINT_PAGES = 4000
"""Pages that are written again and again cost the database file one write a checkpoint."""
PAGES_AT_ONCE = 200
PAGES_KEPT = 1000
"""Free pages that new rows will soon want again."""
_STOP = object()


class SqliteTx:
    __slots__ = ("_connection", "_queries", "effects")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._queries = queries.load("sqlite")
        self.effects = Effects()

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._connection.execute(self._queries[query], values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        rows = self._connection.execute(self._queries[query], values).fetchall()
        return rows[0] if rows else None

    def run(self, query: str, /, **values: Any) -> int:
        self._connection.execute(self._queries[query], values)
        return self._connection.changes()

    def dicts(self, query: str, /, **values: Any) -> list[dict[str, Any]]:
        cursor = self._connection.cursor()
        cursor.execute(self._queries[query], values)
        try:
            names = [column[0] for column in cursor.get_description()]
        except apsw.ExecutionCompleteError:
            return []
        return [dict(zip(names, row, strict=True)) for row in cursor]

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:  # noqa: ARG002
        return True

    def give_back(self, pages: int) -> bool:
        """Return up to `pages` free pages to the file system; whether more are free."""
        free = int(self._connection.pragma("freelist_count"))
        if free > PAGES_KEPT:
            for _ in self._connection.execute(f"PRAGMA incremental_vacuum({pages})"):
                pass
        return free - pages > PAGES_KEPT


class _Pending:
    """A transaction on its way through the writer, and the latch its caller waits on."""

    __slots__ = ("done", "effects", "error", "latch", "result", "work")

    def __init__(
        self, work: Work[Any], done: Callable[[Any, BaseException | None], None] | None
    ) -> None:
        self.work = work
        self.done = done
        self.result: Any = None
        self.error: BaseException | None = None
        self.effects: Effects | None = None
        self.latch = threading.Lock()
        self.latch.acquire()

    def settle(self) -> None:
        if self.done is None:
            self.latch.release()
        else:
            self.done(self.result, self.error)


def _without_fail(call: Callable[..., None], *arguments: object) -> None:
    """A listener's bug, or a caller that is gone, must not end the writer; it is shown."""
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001
        traceback.print_exception(error, file=sys.stderr)


def connect(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """A connection with the pragmas that every user of the ledger needs."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if not read_only:
        flags |= apsw.SQLITE_OPEN_CREATE
    connection = apsw.Connection(str(path), flags=flags)
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    connection.pragma("foreign_keys", True)
    if not read_only:
        # Counts only before the first table is made.
        connection.pragma("auto_vacuum", 2)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
    return connection


class SqliteLedger:
    """Owns the file: the caller holds the instance lock, or opens it `read_only`."""

    engine = "sqlite"

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        self._readers = threading.local()
        self._open_readers: list[apsw.Connection] = []
        self._listeners: list[Listener] = []
        self._broken: LedgerBroken | None = None
        self._batches = self._transactions = self._busy = 0
        self._closed = False
        self._writer: threading.Thread | None = None
        if not read_only:
            self._create()
            self._connection = connect(path)
            self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def _create(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def start(self) -> None:
        """Bring the schema forward, then take transactions; read-only, there is nothing to do."""
        if self._read_only:
            return
        migrate(SqliteSchema(self._connection, self.path))
        self._writer = threading.Thread(target=self._write_loop, name="ledger", daemon=True)
        self._writer.start()

    def write(self, work: Work[T]) -> T:
        pending = _Pending(work, None)
        self._put(pending)
        pending.latch.acquire()
        if pending.error is not None:
            raise pending.error
        result: T = pending.result
        return result

    def submit(self, work: Work[T], done: Callable[[T | None, BaseException | None], None]) -> None:
        self._put(_Pending(work, done))

    def _put(self, pending: _Pending) -> None:
        if self._closed:
            raise LedgerError("the ledger is closed")
        if self._broken is not None:
            raise self._broken
        self._inbox.put(pending)

    def read(self, work: Work[T]) -> T:
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = connect(self.path, read_only=True)
            self._readers.connection = connection
            self._open_readers.append(connection)
        connection.execute("BEGIN")
        try:
            return work(SqliteTx(connection))
        finally:
            connection.execute("ROLLBACK")

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def claim_boot(self, boot: str) -> None:
        """Nothing to do: whoever has the file has the instance lock."""

    def boot_is_dead(self, boot: str) -> bool:  # noqa: ARG002
        return True

    def tidy(self) -> bool:
        return self.write(_give_back)

    def health(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "commits": self._batches,
            "transactions": self._transactions,
            "busy": self._busy,
            "broken": self._broken is not None,
        }

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._inbox.put(_STOP)
            self._writer.join()
        for connection in self._open_readers:
            connection.close()
        if hasattr(self, "_connection"):
            self._connection.close()

    def _write_loop(self) -> None:
        inbox = self._inbox
        while True:
            item = inbox.get()
            batch: list[_Pending] = []
            while item is not _STOP:
                batch.append(item)
                if len(batch) >= LARGEST_BATCH:
                    break
                try:
                    item = inbox.get_nowait()
                except queue.Empty:
                    break
            if batch:
                self._commit_batch(batch)
            if item is _STOP:
                return

    def _commit_batch(self, batch: list[_Pending]) -> None:
        if self._broken is not None:
            for pending in batch:
                pending.error = self._broken
        elif not self._commit_together(batch):
            for pending in batch:
                if pending.error is None:
                    self._commit_together([pending])
        effects = Effects()
        for pending in batch:
            if pending.effects is not None and pending.error is None:
                effects.merge(pending.effects)
        if effects.ready or effects.notices or effects.retry_at:
            for listener in self._listeners:
                _without_fail(listener, effects)
        for pending in batch:
            _without_fail(pending.settle)

    def _commit_together(self, batch: list[_Pending]) -> bool:
        """Run and commit; False where the transaction was lost under somebody's error.

        Then the offender has its error, and the others have to run again, each alone.
        """
        connection = self._connection
        if not self._begin(batch):
            return True
        alone = len(batch) == 1
        for pending in batch:
            if not alone:
                connection.execute("SAVEPOINT work")
            tx = SqliteTx(connection)
            try:
                pending.result = pending.work(tx)
                pending.effects = tx.effects
            except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
                pending.error = _translated(error)
                if not connection.in_transaction:
                    return False
                connection.execute("ROLLBACK" if alone else "ROLLBACK TO work")
            if alone and pending.error is not None:
                return True
            if not alone:
                connection.execute("RELEASE work")
        failpoint("commit.before")
        try:
            connection.execute("COMMIT")
        except apsw.Error as error:
            self._commit_failed(batch, error)
            return True
        failpoint("commit.after")
        self._batches += 1
        self._transactions += len(batch)
        return True

    def _begin(self, batch: list[_Pending]) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._busy += isinstance(error, apsw.BusyError)
            for pending in batch:
                pending.error = _translated(error)
            return False
        return True

    def _commit_failed(self, batch: list[_Pending], error: apsw.Error) -> None:
        failure = _translated(error)
        if not isinstance(failure, LedgerFull | LedgerBusy):
            failure = self._broken = LedgerBroken(f"a commit's fate is unknown: {error}")
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for pending in batch:
            if pending.error is None:
                pending.error = failure


def _translated(error: BaseException) -> BaseException:
    if isinstance(error, apsw.FullError):
        return LedgerFull("the disk is full; nothing was written")
    if isinstance(error, apsw.BusyError):
        return LedgerBusy("another process holds the ledger's write lock")
    return error


def _give_back(tx: Tx) -> bool:
    assert isinstance(tx, SqliteTx)
    return tx.give_back(PAGES_AT_ONCE)


class SqliteSchema:
    """The migrations' view of a SQLite file."""

    engine = "sqlite"

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    def applied(self) -> dict[int, str]:
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS schema_migrations "
            "(number INTEGER PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL)"
        )
        rows = self._connection.execute("SELECT number, checksum FROM schema_migrations")
        return {int(str(row[0])): str(row[1]) for row in rows.fetchall()}

    def before(self, migration: Migration) -> None:
        target = self._path.with_name(f"{self._path.name}.before-{migration.number:04}")
        os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        copy = apsw.Connection(str(target))
        with copy.backup("main", self._connection, "main") as backup:
            backup.step()
        copy.close()

    def apply(self, migration: Migration) -> None:
        with self._connection:
            for statement in migration.statements:
                self._connection.execute(statement)
            self._connection.execute(
                "INSERT INTO schema_migrations VALUES (?, ?, ?)",
                (migration.number, migration.name, migration.checksum),
            )
