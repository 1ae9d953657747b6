"""The ledger on SQLite: one connection writes, what has gathered is committed together.

WAL with synchronous=FULL: an acknowledgement follows the fsync. One transaction of a batch
that fails takes nobody with it: the batch is undone and run again, with a savepoint each.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import apsw

from ductile import files
from ductile.errors import LedgerBroken, LedgerBusy, LedgerError, LedgerFull
from ductile.failpoint import failpoint
from ductile.store.backup import copy
from ductile.store.engines import queries
from ductile.store.engines.api import Done, Effects, Listener, Row, Tx, Work
from ductile.store.engines.migrate import migrate
from ductile.store.engines.pending import Latch, Pending, announce, without_fail
from ductile.store.engines.sqlite_errors import known_trouble, translated
from ductile.store.engines.sqlite_schema import SqliteSchema
from ductile.store.engines.write_queue import Inbox
from ductile.store.go_ledger import refuse_foreign

T = TypeVar("T")
BUSY_TIMEOUT_MS = 5_000
LARGEST_BATCH = 256
WAL_BYTES_KEPT = 16 * 1024 * 1024
CHECKPOINT_PAGES = 4000
"""Pages that are written again and again cost the database file one write a checkpoint."""
PAGES_AT_ONCE = 200
PAGES_KEPT = 1000
"""Free pages that new rows will soon want again."""


class SqliteTx:
    __slots__ = ("_connection", "_execute", "_queries", "effects")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._execute = connection.execute
        self._queries = queries.load("sqlite")
        self.effects = Effects()

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._execute(self._queries[query], values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        rows = self._execute(self._queries[query], values).fetchall()
        return rows[0] if rows else None

    def run(self, query: str, /, **values: Any) -> int:
        self._execute(self._queries[query], values)
        return self._connection.changes()

    def insert(self, query: str, /, **values: Any) -> int:
        self._execute(self._queries[query], values)
        return self._connection.last_insert_rowid()

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


def connect(path: Path, *, read_only: bool = False) -> apsw.Connection:
    """A connection with the pragmas that every user of the ledger needs; or `LedgerError`."""
    flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE
    if not read_only:
        flags |= apsw.SQLITE_OPEN_CREATE
    with known_trouble():
        connection = apsw.Connection(str(path), flags=flags)
        try:
            _set_up(connection, read_only=read_only)
        except BaseException:
            connection.close()
            raise
    return connection


def _set_up(connection: apsw.Connection, *, read_only: bool) -> None:
    connection.set_busy_timeout(BUSY_TIMEOUT_MS)
    # A plan for all values: else every new value of some parameters has the query planned again.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    connection.pragma("foreign_keys", True)
    if not read_only:
        # Counts only before the first table is made.
        connection.pragma("auto_vacuum", 2)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", "full")
        connection.pragma("journal_size_limit", WAL_BYTES_KEPT)
        connection.pragma("wal_autocheckpoint", CHECKPOINT_PAGES)


class SqliteLedger:
    """Owns the file: the caller holds the instance lock, or opens it `read_only`."""

    engine = "sqlite"
    at_once = 64

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        refuse_foreign(path)
        self.path = path
        self._read_only = read_only
        self._readers = threading.local()
        # A reader is its thread's: it is closed when the thread ends, or by `close`.
        self._open_readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._listeners: list[Listener] = []
        self._broken: LedgerBroken | None = None
        self._batches = self._transactions = self._largest = self._busy = 0
        self._closed = False
        self._writer: threading.Thread | None = None
        if not read_only:
            self._create()
            self._connection = connect(path)
            self._inbox = Inbox()
            self._turn = threading.Lock()

    def _create(self) -> None:
        files.create(self.path.parent)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    def start(self) -> None:
        """Bring the schema forward, then take transactions; read-only, there is nothing to do."""
        if self._read_only:
            return
        with known_trouble():
            migrate(SqliteSchema(self._connection, self.path))
        self._writer = threading.Thread(target=self._write_loop, name="ledger", daemon=True)
        self._writer.start()

    def write(self, work: Work[T]) -> T:
        latch = Latch()
        self.submit(work, latch.release)
        result: T = latch.wait()
        return result

    def submit(self, work: Work[T], done: Done[T]) -> None:
        self._check()
        self._inbox.put(Pending(work, done))
        if self._closed:
            # Closed since it was checked: nobody else may look there again.
            self._refuse_the_rest()

    def carry(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Committed here and now, with what else has gathered: no thread has to be woken."""
        batch = [Pending(work, done) for work, done in works]
        with self._turn:
            self._check()
            batch += self._inbox.take(LARGEST_BATCH - len(batch), by_carrier=True)
            self._commit_batch(batch)

    def _check(self) -> None:
        if self._closed:
            raise LedgerError("the ledger is closed")
        if self._broken is not None:
            raise self._broken

    def read(self, work: Work[T]) -> T:
        connection = getattr(self._readers, "connection", None)
        if connection is None:
            connection = connect(self.path, read_only=True)
            self._readers.connection = connection
            self._open_readers.add(connection)
        try:
            with known_trouble():
                connection.execute("BEGIN")
                return work(SqliteTx(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def follow(self, ear: Callable[[], bool]) -> bool:  # noqa: ARG002
        """Whoever has the file has the instance lock: nobody else writes."""
        return False

    def claim_boot(self, boot: str) -> None:
        """Nothing to do: whoever has the file has the instance lock."""

    def boot_is_dead(self, boot: str) -> bool:  # noqa: ARG002
        return True

    def tidy(self) -> bool:
        return self.write(_give_back)

    def examine(
        self, seconds: float | None, beat: Callable[[], None]
    ) -> tuple[list[tuple[str, str, str]], bool]:
        connection = connect(self.path, read_only=True)
        try:
            return copy.integrity(connection, seconds, beat)
        finally:
            connection.close()

    def backup(self, target: Path, watch: Callable[[int, int], None]) -> None:
        source = connect(self.path, read_only=True)
        try:
            copy.copy(source, target, watch)
        except apsw.Error as error:
            known = translated(error)
            if isinstance(known, LedgerFull | LedgerBusy):
                raise known from error
            raise LedgerError(f"the ledger cannot be copied: {error}") from error
        finally:
            source.close()

    def health(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "commits": self._batches,
            "transactions": self._transactions,
            "largest_batch": self._largest,
            "busy": self._busy,
            "broken": self._broken is not None,
        }

    def hang_up(self) -> None:
        """Nothing to do: nobody waits for a file for long."""

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._inbox.close()
            self._writer.join()
            self._refuse_the_rest()
        for connection in list(self._open_readers):
            connection.close()
        if not self._read_only:
            with self._turn:
                self._connection.close()

    def _refuse_the_rest(self) -> None:
        """Answer what came too late for the writer."""
        while late := self._inbox.take(LARGEST_BATCH):
            for pending in late:
                pending.error = LedgerError("the ledger is closed")
                without_fail(pending.settle)

    def _write_loop(self) -> None:
        while self._inbox.wait():
            with self._turn:
                batch = self._inbox.take(LARGEST_BATCH)
                if batch:
                    self._commit_batch(batch)

    def _commit_batch(self, batch: list[Pending]) -> None:
        """Commit what can be committed of it, and answer everybody, whatever happens."""
        try:
            if self._broken is not None:
                raise self._broken
            self._commit_all(batch)
        except Exception as error:  # noqa: BLE001 - everybody gets it who has no answer yet
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            for pending in batch:
                if not pending.committed:
                    pending.error = pending.error or error
        self._announce(batch)

    def _commit_all(self, batch: list[Pending]) -> None:
        if self._commit_together(batch):
            return
        if all(pending.error is None for pending in batch) and self._commit_together(
            batch, guarded=True
        ):
            return
        for pending in batch:
            if pending.error is None:
                self._commit_together([pending])

    def _announce(self, batch: list[Pending]) -> None:
        """Tell the listeners, then the callers."""
        effects = Effects()
        for pending in batch:
            if pending.effects is not None and pending.error is None:
                effects.merge(pending.effects)
        announce(effects, self._listeners)
        for pending in batch:
            without_fail(pending.settle)

    def _commit_together(self, batch: list[Pending], *, guarded: bool = False) -> bool:
        """Run and commit; False where all of it was undone and has to be run again.

        Unguarded, anybody's error undoes it: a savepoint a transaction costs a third of the
        transaction itself. Guarded, an error undoes its own transaction alone, unless SQLite
        has given up the whole; then the offender has its error, and the others have none.
        """
        connection = self._connection
        if not self._begin(batch):
            return True
        for pending in batch:
            if guarded:
                connection.execute("SAVEPOINT work")
            try:
                tx = SqliteTx(connection)
                pending.result = pending.work(tx)
                pending.effects = tx.effects
            except Exception as error:  # noqa: BLE001 - it is the caller's, who gets it
                pending.error = translated(error)
                if not connection.in_transaction:
                    return False
                if not guarded:
                    connection.execute("ROLLBACK")
                    if len(batch) > 1:
                        pending.error = None
                    return len(batch) == 1
                connection.execute("ROLLBACK TO work")
            if guarded:
                connection.execute("RELEASE work")
        self._commit(batch)
        return True

    def _commit(self, batch: list[Pending]) -> None:
        failpoint("commit.before")
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            self._commit_failed(batch, error)
            return
        failpoint("commit.after")
        for pending in batch:
            pending.committed = pending.error is None
        self._batches += 1
        self._transactions += len(batch)
        self._largest = max(self._largest, len(batch))

    def _begin(self, batch: list[Pending]) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._busy += isinstance(error, apsw.BusyError)
            for pending in batch:
                pending.error = translated(error)
            return False
        return True

    def _commit_failed(self, batch: list[Pending], error: apsw.Error) -> None:
        failure = translated(error)
        if not isinstance(failure, LedgerFull | LedgerBusy):
            failure = self._broken = LedgerBroken(f"a commit's fate is unknown: {error}")
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for pending in batch:
            if pending.error is None:
                pending.error = failure


def _give_back(tx: Tx) -> bool:
    assert isinstance(tx, SqliteTx)
    return tx.give_back(PAGES_AT_ONCE)
