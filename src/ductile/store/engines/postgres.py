"""The ledger on PostgreSQL: the same queries, READ COMMITTED, one connection per transaction.

SQLite's single writer serializes everything; here advisory locks serialize what concerns one
plugin or one dedupe key. A boot id is held by the lock of a separate session.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import psycopg
from psycopg import errors

from ductile.errors import LedgerBusy, LedgerError
from ductile.failpoint import failpoint
from ductile.store.engines.api import (
    Done,
    Effects,
    Listener,
    NewsReader,
    NodeNews,
    Row,
    StoredNotice,
    Tx,
    Work,
)
from ductile.store.engines.migrate import WaitingMigration, migrate
from ductile.store.engines.pg.boot_lock import BootLock, end_sessions, is_dead
from ductile.store.engines.pg.connection import (
    NEVER_GIVE_UP,
    SteadyPool,
    check_database,
    configure_session,
    describe_refusal,
    with_keepalives,
)
from ductile.store.engines.pg.deadlines import ConnectionDeadlines
from ductile.store.engines.pg.errors import translating_errors
from ductile.store.engines.pg.notify import PgNotifier
from ductile.store.engines.pg.schema import PostgresSchema, reset_restored_positions
from ductile.store.engines.pg.tx import InsertOnlyTx, NeedsConnection, PostgresTx
from ductile.store.engines.write_queue import (
    PendingWrite,
    WriteQueue,
    call_safely,
    notify_listeners,
)

T = TypeVar("T")
TRIES = 20
"""Attempts at a transaction that ends in a deadlock or a lost race, before the caller gets it."""
LARGEST_GROUP = 64
"""Submitted transactions that are committed together at most."""
OPEN_TIMEOUT = 10.0
"""Seconds that a server which starts at the same time has to come up."""
CALL_TIMEOUT, READ_ONLY_TIMEOUT = 20.0, 3600.0
"""Seconds that one transaction may take; a command that only reads may check all rows."""
COMMIT_CHECK_TIMEOUT, COMMIT_CHECK_INTERVAL = 20.0, 0.1
"""Seconds for which a lost commit is looked up, and between two look-ups."""


class PostgresLedger:
    engine = "postgres"
    batch_size = 16

    def __init__(
        self,
        url: str,
        *,
        connections: int = 8,
        read_only: bool = False,
        application: str = "ductile",
    ) -> None:
        self.url = url
        self._read_only = read_only
        self._address = with_keepalives(url, application)
        self._pool = SteadyPool(
            self._address,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=10.0,
            reconnect_timeout=NEVER_GIVE_UP,
            configure=configure_session,
        )
        # One connection that does not answer makes all of them suspect.
        self._deadlines = ConnectionDeadlines(self._pool.drain)
        self._submitters = concurrent.futures.ThreadPoolExecutor(
            connections, thread_name_prefix="ledger"
        )
        self._queue = WriteQueue()
        self._writer: threading.Thread | None = None
        self._listeners: list[Listener] = []
        self._announcing = threading.Lock()
        self._boots = BootLock(self._address, self._pool, self._deadlines)
        self._commits = 0
        self.waiting_migration: str | None = None
        self._closed = False
        self._is_aborted = False
        self._notifier: PgNotifier | None = None

    def start(self) -> None:
        """Connect, migrate the schema, and accept transactions."""
        try:
            self._pool.open(wait=True, timeout=OPEN_TIMEOUT)
        except psycopg.Error as error:
            why = describe_refusal(self._address) or str(error)
            raise LedgerError(f"the database cannot be reached: {why}") from error
        if not self._read_only:
            check_database(self._address)
            self.migrate()
            with self._pool.connection() as connection:
                reset_restored_positions(connection)
            self._writer = threading.Thread(target=self._write_loop, name="ledger", daemon=True)
            self._writer.start()

    def migrate(self) -> None:
        """Apply the pending migrations, except those that wait for older nodes to end."""
        with self._pool.connection() as connection:
            migrate(PostgresSchema(connection), self._keep_waiting)

    def _keep_waiting(self, waiting: WaitingMigration | None) -> None:
        self.waiting_migration = None if waiting is None else str(waiting)

    def write(self, work: Work[T]) -> T:
        self._check_open()
        for left in reversed(range(TRIES)):
            try:
                return self._commit(work)
            except (errors.DeadlockDetected, errors.UniqueViolation, errors.SerializationFailure):
                if left == 0:
                    raise
        raise AssertionError("unreachable")

    def _commit(self, work: Work[T]) -> T:
        committing_pid = 0
        try:
            with self._connection() as connection:
                tx = PostgresTx(connection)
                with connection.transaction():
                    result = work(tx)
                    tx.write_rows()
                    failpoint("commit.before")
                    committing_pid = connection.info.backend_pid
                failpoint("commit.after")
        except LedgerBusy:
            if not committing_pid or not self._is_committed(committing_pid, tx.effects.notices):
                raise
        self._commits += 1
        self._announce(tx.effects)
        return result

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Row]]:
        self._check_aborted()
        with translating_errors(), self._pool.connection() as connection:
            limit = READ_ONLY_TIMEOUT if self._read_only else CALL_TIMEOUT
            with self._deadlines.limit(connection, limit):
                self._check_aborted()
                yield connection

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerError("the ledger is closed")

    def _check_aborted(self) -> None:
        if self._is_aborted:
            raise LedgerBusy("the database did not answer in time")

    def _is_committed(self, pid: int, notices: Sequence[StoredNotice]) -> bool:
        """Whether the transaction of server process `pid` was committed when its answer was lost.

        Otherwise a job that it claimed would have a living owner that does not know of it. If the
        server stays away too long, the transaction counts as rolled back; if it was committed
        after all, its job is found as an orphan (`engine/recovery/orphans.py`).
        """
        deadline = time.monotonic() + COMMIT_CHECK_TIMEOUT
        while notices and not self._is_aborted and time.monotonic() < deadline:
            try:
                if not self._is_in_transaction(pid):
                    return self.read(lambda tx: tx.one("notice", id=notices[0].id)) is not None
            except LedgerBusy:
                pass
            time.sleep(COMMIT_CHECK_INTERVAL)
        return False

    def _is_in_transaction(self, pid: int) -> bool:
        with self._connection() as connection:
            query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND xact_start IS NOT NULL"
            found = connection.execute(query, (pid,)).fetchone()
            connection.commit()
            return found is not None

    def _announce(self, effects: Effects) -> None:
        with self._announcing:
            notify_listeners(effects, self._listeners)
        if effects.notices and self._notifier is not None:
            self._notifier.post_notices()
        if effects.requests:
            self.tell_nodes(NodeNews.REQUESTS)

    def write_batch(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Run them in parallel, because each of them waits for the network.

        Queued transactions that only append rows are committed along with them.
        """
        for work, done in works:
            self._submit_alone(PendingWrite(work, done), self._write_with_queued)

    def submit(self, work: Work[T], done: Done[T]) -> None:
        self._check_open()
        self._queue.put(PendingWrite(work, done))
        if self._closed:
            # It was closed after the check, and the writer may have ended.
            self._commit_together(self._queue.take(LARGEST_GROUP))

    def _write_loop(self) -> None:
        while self._queue.wait():
            self._commit_together(self._queue.take(LARGEST_GROUP))

    def _write_with_queued(self, first: PendingWrite) -> None:
        self._commit_together(self._queue.take(LARGEST_GROUP, by_writer=False), first)

    def _commit_together(
        self, group: Sequence[PendingWrite], first: PendingWrite | None = None
    ) -> None:
        """Commit `first` and those that only append rows in one; the others run in parallel."""
        appending = [(pending, tx) for pending in group if (tx := self._run_appending(pending))]
        together = [pending for pending, _ in appending] + ([first] if first else [])
        if not together:
            return

        def run_all(tx: Tx) -> None:
            if first is not None:
                first.result = first.work(tx)
            for _, appended in appending:
                cast("PostgresTx", tx).adopt(appended)

        error: LedgerError | None = None
        try:
            self._commit(run_all)
        except LedgerError as failure:
            error = failure
        except Exception:  # noqa: BLE001 - one of them; each gets its own result
            for pending in together:
                self._submit_alone(pending)
            return
        for pending in together:
            pending.error = error
            call_safely(pending.report)

    def _run_appending(self, pending: PendingWrite) -> InsertOnlyTx | None:
        """The rows of a transaction that only appends; None if it was passed on or has failed."""
        tx = InsertOnlyTx()
        try:
            pending.result = pending.work(tx)
        except NeedsConnection:
            self._submit_alone(pending)
            return None
        except Exception as error:  # noqa: BLE001 - the caller gets it
            pending.error = error
            call_safely(pending.report)
            return None
        return tx

    def _submit_alone(
        self, pending: PendingWrite, write: Callable[[PendingWrite], None] | None = None
    ) -> None:
        try:
            self._submitters.submit(write or self._write_alone, pending)
        except RuntimeError:
            pending.error = LedgerError("the ledger is closed")
            call_safely(pending.report)

    def _write_alone(self, pending: PendingWrite) -> None:
        try:
            pending.result, pending.error = self.write(pending.work), None
        except Exception as error:  # noqa: BLE001 - the caller gets it
            pending.result, pending.error = None, error
        call_safely(pending.report)

    def read(self, work: Work[T]) -> T:
        with self._connection() as connection:
            # A part of BEGIN, not a statement of its own. It ends with a commit, because the driver
            # forgets the prepared statements of a connection at each rollback.
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            try:
                with connection.transaction():
                    return work(PostgresTx(connection))
            finally:
                if not connection.closed:
                    connection.isolation_level = connection.read_only = None

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def watch_nodes(self, reader: NewsReader) -> bool:
        self._notifier = PgNotifier(self._address, reader, self._deadlines)
        self._notifier.start()
        return True

    def tell_nodes(self, news: NodeNews) -> None:
        if self._notifier is not None:
            self._notifier.post(news)

    def follow_notices(self) -> None:
        if self._notifier is not None:
            self._notifier.follow()

    def claim_boot(self, boot: str) -> None:
        self._boots.claim(boot)

    def write_as_boot(self, work: Work[T]) -> T:
        """On the session that holds the boot: all those of the pool may be in use."""
        self._check_open()
        with translating_errors():
            result, effects = self._boots.write(work)
        self._announce(effects)
        return result

    def boot_is_dead(self, boot: str) -> bool:
        with self._connection() as connection:
            return is_dead(connection, boot)

    def end_sessions(self, boot: str) -> int:
        with self._connection() as connection:
            return end_sessions(connection, boot)

    def vacuum(self) -> bool:
        """Does nothing: the server vacuums by itself."""
        return False

    def check_integrity(
        self,
        seconds: float | None,  # noqa: ARG002
        on_tick: Callable[[], None],  # noqa: ARG002
    ) -> tuple[list[tuple[str, str, str]], bool]:
        """The server checks its own pages; reports indexes that it could not complete."""
        broken = self.read(lambda tx: tx.all("broken_indexes"))
        return [("pages", f"index {name}", "is not valid") for (name,) in broken], True

    def backup(self, target: Path, progress: Callable[[int, int], None]) -> None:
        from ductile.store.backup.pg_transfer import export_ledger

        try:
            with psycopg.connect(self.url) as connection:
                export_ledger(connection, target, progress)
        except psycopg.Error as error:
            raise LedgerError(f"the database cannot be copied: {error}") from error

    def check_files(self) -> None:
        """Does nothing: the files are the server's."""

    def health(self) -> dict[str, object]:
        commits = {"commits": self._commits, "transactions": self._commits}
        return {"engine": self.engine, **commits, **self._pool.get_stats()}

    def abort_connections(self) -> None:
        self._is_aborted = True
        self._deadlines.abort_all()
        if self._notifier is not None:
            self._notifier.abort()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        if self._writer is not None:
            self._writer.join()
        self._submitters.shutdown(wait=True)
        if self._notifier is not None:
            self._notifier.stop()
        self._boots.close()
        # After an abort, threads that still try to connect are not waited for.
        self._pool.close(timeout=0.0 if self._is_aborted else 5.0)
        self._deadlines.close()
