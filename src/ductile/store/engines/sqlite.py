"""The ledger on SQLite: one connection writes, and queued transactions are committed together.

WAL with synchronous=FULL: an acknowledgement follows the fsync. A transaction that fails does not
affect the others of its batch: the batch is rolled back and run again with a savepoint for each.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import apsw

from ductile import files
from ductile.errors import LedgerBroken, LedgerBusy, LedgerError, LedgerFull
from ductile.failpoint import failpoint
from ductile.store.backup import copy
from ductile.store.engines.api import Done, Effects, Listener, NewsReader, NodeNews, Tx, Work
from ductile.store.engines.migrate import migrate
from ductile.store.engines.sqlite_connection import connect
from ductile.store.engines.sqlite_errors import is_damage, translate_error, translating_errors
from ductile.store.engines.sqlite_file import OpenFiles, check_access, refuse_lost_database
from ductile.store.engines.sqlite_schema import SqliteSchema
from ductile.store.engines.sqlite_tx import SqliteTx
from ductile.store.engines.write_queue import (
    CommitLatch,
    PendingWrite,
    WriteQueue,
    call_safely,
    notify_listeners,
    run_batch,
)
from ductile.store.go_ledger import refuse_go_ledger

T = TypeVar("T")
LARGEST_BATCH = 256
IDLE_READERS = 8
"""Connections for reading that are kept. Each takes 0.3 MB for the schema and its pages."""
VACUUM_PAGES = 200


class SqliteLedger:
    """Owns the file: the caller holds the instance lock, or opens it `read_only`."""

    engine = "sqlite"
    waiting_migration: str | None = None
    batch_size = 64

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        check_access(path, read_only=read_only)
        refuse_go_ledger(path)
        self.path = path
        self._read_only = read_only
        self._idle_readers: list[apsw.Connection] = []
        self._idle_lock = threading.Lock()
        self._open_readers: weakref.WeakSet[apsw.Connection] = weakref.WeakSet()
        self._listeners: list[Listener] = []
        self._broken: LedgerBroken | None = None
        self._batches = self._transactions = self._largest = self._busy = 0
        self._closed = False
        self._writer: threading.Thread | None = None
        self._files: OpenFiles | None = None
        if not read_only:
            refuse_lost_database(path)
            self._create()
            self._connection = connect(path)
            self._queue = WriteQueue()
            self._commit_lock = threading.Lock()

    def _create(self) -> None:
        """Create a missing file; `LedgerError` if this user cannot use it or its directory."""
        try:
            files.create(self.path.parent)
            if not self.path.exists():
                os.close(files.open_or_create(self.path.resolve()))
        except OSError as error:
            problem = f"the ledger {self.path} cannot be used: {error.strerror}"
            raise LedgerError(f"{problem}; let this user write to {self.path.parent}") from error

    def start(self) -> None:
        """Migrate the schema and accept transactions; does nothing for a read-only ledger."""
        if self._read_only:
            return
        with translating_errors():
            migrate(SqliteSchema(self._connection, self.path))
        self._files = OpenFiles(self.path)
        self._writer = threading.Thread(target=self._write_loop, name="ledger", daemon=True)
        self._writer.start()

    def write(self, work: Work[T]) -> T:
        latch = CommitLatch()
        self.submit(work, latch.release)
        result: T = latch.wait()
        return result

    def submit(self, work: Work[T], done: Done[T]) -> None:
        self._check()
        self._queue.put(PendingWrite(work, done))
        if self._closed:
            # It was closed after the check, and the writer may have ended.
            self._reject_queued()

    def write_batch(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Commit them in this thread, together with queued ones, so that no thread is woken."""
        batch = [PendingWrite(work, done) for work, done in works]
        with self._commit_lock:
            self._check()
            batch += self._queue.take(LARGEST_BATCH - len(batch), by_writer=False)
            self._commit_batch(batch)

    def _check(self) -> None:
        if self._closed:
            raise LedgerError("the ledger is closed")
        if self._broken is not None:
            raise self._broken

    def read(self, work: Work[T]) -> T:
        try:
            connection = self._idle_readers.pop()
        except IndexError:
            connection = connect(self.path, read_only=True)
            self._open_readers.add(connection)
        try:
            with translating_errors():
                connection.execute("BEGIN")
                return work(SqliteTx(connection))
        finally:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            with self._idle_lock:
                is_kept = len(self._idle_readers) < IDLE_READERS
                if is_kept:
                    self._idle_readers.append(connection)
            if not is_kept:
                connection.close()

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def watch_nodes(self, reader: NewsReader) -> bool:  # noqa: ARG002
        """The owner of the file holds the instance lock: no other process writes."""
        return False

    def migrate(self) -> None:
        """Does nothing: no migration waits for other nodes."""

    def tell_nodes(self, news: NodeNews) -> None:
        """Does nothing: there is no other node."""

    def follow_notices(self) -> None:
        """Does nothing: every notice is of this process."""

    def write_as_boot(self, work: Work[T]) -> T:
        return self.write(work)

    def claim_boot(self, boot: str) -> None:
        """Does nothing: the owner of the file holds the instance lock."""

    def boot_is_dead(self, boot: str) -> bool:  # noqa: ARG002
        return True

    def end_sessions(self, boot: str) -> int:  # noqa: ARG002
        return 0

    def vacuum(self) -> bool:
        return self.write(_vacuum)

    def check_integrity(
        self, seconds: float | None, on_tick: Callable[[], None]
    ) -> tuple[list[tuple[str, str, str]], bool]:
        connection = connect(self.path, read_only=True)
        try:
            return copy.check_integrity(connection, seconds, on_tick)
        finally:
            connection.close()

    def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        source = connect(self.path, read_only=True)
        try:
            copy.copy_ledger(source, target, progress)
        except apsw.Error as error:
            known = translate_error(error)
            if isinstance(known, LedgerFull | LedgerBusy):
                raise known from error
            raise LedgerError(f"the ledger cannot be copied: {error}") from error
        finally:
            source.close()

    def check_files(self) -> None:
        """Raise `LedgerMoved` if the open files are no longer those at the ledger's path."""
        if self._files is not None:
            self._files.check()

    def health(self) -> dict[str, object]:
        return {
            "engine": self.engine,
            "commits": self._batches,
            "transactions": self._transactions,
            "largest_batch": self._largest,
            "busy": self._busy,
            "broken": self._broken is not None,
        }

    def abort_connections(self) -> None:
        """Does nothing: no call waits long for a file."""

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._queue.close()
            self._writer.join()
            self._reject_queued()
        for connection in list(self._open_readers):
            connection.close()
        if not self._read_only:
            with self._commit_lock:
                self._connection.close()
        if self._files is not None:
            self._files.close()

    def _reject_queued(self) -> None:
        """Report an error to the callers of transactions that the writer will not see."""
        while late := self._queue.take(LARGEST_BATCH):
            for pending in late:
                pending.error = LedgerError("the ledger is closed")
                call_safely(pending.report)

    def _write_loop(self) -> None:
        while self._queue.wait():
            with self._commit_lock:
                batch = self._queue.take(LARGEST_BATCH)
                if batch:
                    self._commit_batch(batch)

    def _commit_batch(self, batch: list[PendingWrite]) -> None:
        """Commit as much of it as possible, and report to every caller, whatever happens."""
        try:
            if self._broken is not None:
                raise self._broken
            self.check_files()
            self._commit_all(batch)
        except Exception as error:  # noqa: BLE001 - reported to every caller below
            self._roll_back()
            for pending in batch:
                if not pending.committed:
                    pending.error = pending.error or error
        self._announce(batch)

    def _roll_back(self) -> None:
        """End a failed transaction; if that fails too, the ledger accepts no more of them."""
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error as error:
            self._broken = LedgerBroken(f"a failed transaction cannot be rolled back: {error}")

    def _commit_all(self, batch: list[PendingWrite]) -> None:
        if self._commit_together(batch) or self._commit_together(batch, guarded=True):
            return
        for pending in batch:
            if pending.error is None:
                self._commit_together([pending])

    def _announce(self, batch: list[PendingWrite]) -> None:
        """Report to the listeners first, then to the callers."""
        effects = Effects()
        for pending in batch:
            if pending.effects is not None and pending.error is None:
                effects.merge(pending.effects)
        notify_listeners(effects, self._listeners)
        for pending in batch:
            call_safely(pending.report)

    def _commit_together(self, batch: list[PendingWrite], *, guarded: bool = False) -> bool:
        """Run and commit; False if all of it was rolled back and has to run again.

        Unguarded, any error rolls back the batch: a savepoint per transaction costs a third of
        the transaction itself. Guarded, an error rolls back its own transaction only, unless
        SQLite has abandoned the whole batch; then only the failed transaction has an error.
        """
        if not self._begin(batch):
            return True
        if not (self._run_each(batch) if guarded else self._run_all(batch)):
            return False
        if self._connection.in_transaction:
            self._commit(batch)
        return True

    def _run_all(self, batch: list[PendingWrite]) -> bool:
        """Run them as one transaction, which an error ends; False if they have to run again."""
        tx = SqliteTx(self._connection)
        try:
            run_batch(tx, batch)
            tx.write_rows()
        except Exception as error:  # noqa: BLE001 - reported to its caller
            was_abandoned = not self._connection.in_transaction
            if not was_abandoned:
                self._connection.execute("ROLLBACK")
            if len(batch) == 1:
                batch[0].error = translate_error(error)
                return True
            if not was_abandoned:
                return False
            # By SQLite, on a full disk: the others run again one by one.
            for pending in batch:
                self._commit_together([pending])
            return True
        batch[0].effects = tx.effects
        return True

    def _run_each(self, batch: list[PendingWrite]) -> bool:
        """Run them with a savepoint each; False if they have to run again."""
        connection = self._connection
        for pending in batch:
            connection.execute("SAVEPOINT work")
            try:
                tx = SqliteTx(connection)
                pending.result = pending.work(tx)
                tx.write_rows()
                pending.effects = tx.effects
            except Exception as error:  # noqa: BLE001 - reported to its caller
                pending.error = translate_error(error)
                if not connection.in_transaction:
                    return False
                if is_damage(error):
                    # SQLite would refuse to commit the others, although they were not affected.
                    connection.execute("ROLLBACK")
                    return False
                connection.execute("ROLLBACK TO work")
            connection.execute("RELEASE work")
        return True

    def _commit(self, batch: list[PendingWrite]) -> None:
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

    def _begin(self, batch: list[PendingWrite]) -> bool:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            self._busy += isinstance(error, apsw.BusyError)
            for pending in batch:
                pending.error = translate_error(error)
            return False
        return True

    def _commit_failed(self, batch: list[PendingWrite], error: apsw.Error) -> None:
        failure = translate_error(error)
        if not isinstance(failure, LedgerFull | LedgerBusy):
            failure = self._broken = LedgerBroken(
                f"it is unknown whether a commit succeeded: {error}"
            )
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        for pending in batch:
            if pending.error is None:
                pending.error = failure


def _vacuum(tx: Tx) -> bool:
    assert isinstance(tx, SqliteTx)
    return tx.vacuum(VACUUM_PAGES)
