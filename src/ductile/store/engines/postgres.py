"""The ledger on PostgreSQL: the same queries, READ COMMITTED, a connection a transaction.

Where one writer holds everything on SQLite, advisory locks hold a plugin or a dedupe key
here. A boot id is held by a lock of a session of its own.
"""

from __future__ import annotations

import concurrent.futures
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from ductile.errors import LedgerBusy, LedgerError, LedgerFull
from ductile.failpoint import failpoint
from ductile.store.engines import queries
from ductile.store.engines.api import Done, Effects, Listener, Row, StoredNotice, Work
from ductile.store.engines.migrate import HISTORY, HISTORY_DDL, Migration, migrate
from ductile.store.engines.pending import announce
from ductile.store.engines.pg_boot_lock import (
    CONNECT_WITHIN,
    BootSession,
    attentive,
    hang_up,
    watch_client,
)
from ductile.store.engines.pg_notify import News

T = TypeVar("T")
TRIES = 20
"""A deadlock or a lost race is tried again so often before the caller hears of it."""
OPEN_WITHIN = 10.0
"""Seconds in which a server that starts at the same time may come up."""
ANSWER_WITHIN, ASK_AGAIN = 20.0, 0.1
"""Seconds for which a server that was lost at a commit is asked what became of it."""
AGE_NOTICES = """
UPDATE notices SET xact = 0
WHERE xact >= CAST(CAST(pg_snapshot_xmax(pg_current_snapshot()) AS text) AS bigint)
"""
"""A database that was restored elsewhere names transactions that its server has yet to count to;
no row that can be seen is of such a one, so that these come first."""


class PostgresTx:
    __slots__ = ("_connection", "_queries", "effects")

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection
        self._queries = queries.load("postgres")
        self.effects = Effects()

    def all(self, query: str, /, **values: Any) -> list[Row]:
        return self._connection.execute(self._sql(query), values).fetchall()

    def one(self, query: str, /, **values: Any) -> Row | None:
        return self._connection.execute(self._sql(query), values).fetchone()

    def run(self, query: str, /, **values: Any) -> int:
        return self._connection.execute(self._sql(query), values).rowcount

    def insert(self, query: str, /, **values: Any) -> int:
        row = self._connection.execute(self._sql(query), values).fetchone()
        assert row is not None
        id: int = row[0]
        return id

    def dicts(self, query: str, /, **values: Any) -> list[dict[str, Any]]:
        with self._connection.cursor(row_factory=dict_row) as cursor:
            return cursor.execute(self._sql(query), values).fetchall()

    def hold(self, kind: str, name: str, *, wait: bool) -> bool:
        key = {"key": _key(kind, name)}
        if wait:
            self._connection.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(%(key)s, 0))", key
            )
            return True
        row = self._connection.execute(
            "SELECT pg_try_advisory_xact_lock(hashtextextended(%(key)s, 0))", key
        ).fetchone()
        return bool(row and row[0])

    def _sql(self, query: str) -> Any:
        return self._queries[query]


class PostgresLedger:
    engine = "postgres"
    at_once = 1
    """Each statement is a journey: several transactions travel at the same time."""

    def __init__(self, url: str, *, connections: int = 8, read_only: bool = False) -> None:
        self.url = url
        self._read_only = read_only
        self._address = attentive(url)
        self._pool: ConnectionPool[psycopg.Connection[Row]] = ConnectionPool(
            self._address,
            min_size=1,
            max_size=connections,
            open=False,
            timeout=10.0,
            configure=watch_client,
        )
        self._submitters = concurrent.futures.ThreadPoolExecutor(
            connections, thread_name_prefix="ledger"
        )
        self._listeners: list[Listener] = []
        self._announcing = threading.Lock()
        self._boots = BootSession(self._address, self._pool, _boot_key)
        self._commits = 0
        self._closed = False
        self._lent: set[psycopg.Connection[Row]] = set()
        self._has_hung_up = False
        self._news: News | None = None

    def start(self) -> None:
        """Connect and bring the schema forward, then take transactions."""
        try:
            self._pool.open(wait=True, timeout=OPEN_WITHIN)
        except psycopg.Error as error:
            why = self._why_unreachable() or str(error)
            raise LedgerError(f"the database cannot be reached: {why}") from error
        if not self._read_only:
            with self._pool.connection() as connection:
                migrate(PostgresSchema(connection))
                connection.execute(AGE_NOTICES)

    def _why_unreachable(self) -> str | None:
        """The server's or the system's own word, on one line: the pool tells of its patience."""
        try:
            psycopg.connect(self._address, connect_timeout=CONNECT_WITHIN).close()
        except psycopg.Error as error:
            return " ".join(str(error).split())
        return None

    def write(self, work: Work[T]) -> T:
        if self._closed:
            raise LedgerError("the ledger is closed")
        for left in reversed(range(TRIES)):
            try:
                return self._commit(work)
            except (errors.DeadlockDetected, errors.UniqueViolation, errors.SerializationFailure):
                if left == 0:
                    raise
        raise AssertionError("unreachable")

    def _commit(self, work: Work[T]) -> T:
        asked = 0
        try:
            with self._connection() as connection:
                tx = PostgresTx(connection)
                with connection.transaction():
                    result = work(tx)
                    failpoint("commit.before")
                    asked = connection.info.backend_pid
                failpoint("commit.after")
        except LedgerBusy:
            if not (asked and self._is_committed(asked, tx.effects.notices)):
                raise
        self._commits += 1
        self._announce(tx.effects)
        return result

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Row]]:
        self._check_line()
        with _answering(), self._pool.connection() as connection:
            self._lent.add(connection)
            try:
                self._check_line()
                yield connection
            finally:
                self._lent.discard(connection)

    def _check_line(self) -> None:
        if self._has_hung_up:
            raise LedgerBusy("the database did not answer in time")

    def _is_committed(self, pid: int, notices: Sequence[StoredNotice]) -> bool:
        """Whether what the server process `pid` was to commit when it was lost is committed.

        A job that was claimed so would be nobody's: its owner lives, and does not know of it.
        Where the server stays away too long it is taken for undone; if it was not, its job is
        found as a stray (`engine/recovery/orphans.py`).
        """
        give_up = time.monotonic() + ANSWER_WITHIN
        while notices and not self._has_hung_up and time.monotonic() < give_up:
            try:
                if not self._is_in_transaction(pid):
                    return self.read(lambda tx: tx.one("notice", id=notices[0].id)) is not None
            except LedgerBusy:
                pass
            time.sleep(ASK_AGAIN)
        return False

    def _is_in_transaction(self, pid: int) -> bool:
        with self._connection() as connection:
            query = "SELECT 1 FROM pg_stat_activity WHERE pid = %s AND xact_start IS NOT NULL"
            found = connection.execute(query, (pid,)).fetchone()
            connection.rollback()
            return found is not None

    def _announce(self, effects: Effects) -> None:
        with self._announcing:
            announce(effects, self._listeners)
        if effects.notices and self._news is not None:
            self._news.post()

    def carry(self, works: Sequence[tuple[Work[T], Done[T]]]) -> None:
        """Side by side: each waits for the network, and none for another."""
        for work, done in works:
            self.submit(work, done)

    def submit(self, work: Work[T], done: Done[T]) -> None:
        def finish(future: concurrent.futures.Future[T]) -> None:
            error = future.exception()
            done(None if error else future.result(), error)

        try:
            submitted = self._submitters.submit(self.write, work)
        except RuntimeError as error:
            raise LedgerError("the ledger is closed") from error
        submitted.add_done_callback(finish)

    def read(self, work: Work[T]) -> T:
        with self._connection() as connection:
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            result = work(PostgresTx(connection))
            connection.rollback()
            return result

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def follow(self, ear: Callable[[], bool]) -> bool:
        self._news = News(self._address, ear)
        self._news.start()
        return True

    def claim_boot(self, boot: str) -> None:
        self._boots.claim(boot)

    def boot_is_dead(self, boot: str) -> bool:
        with self._connection() as connection:
            # Shared: whoever else looks at the same moment must not pass for its holder.
            row = connection.execute(
                "SELECT pg_try_advisory_xact_lock_shared(hashtextextended(%(key)s, 0))",
                {"key": _boot_key(boot)},
            ).fetchone()
            connection.rollback()
            return bool(row and row[0])

    def tidy(self) -> bool:
        """The server vacuums by itself."""
        return False

    def examine(
        self,
        seconds: float | None,  # noqa: ARG002
        beat: Callable[[], None],  # noqa: ARG002
    ) -> tuple[list[tuple[str, str, str]], bool]:
        """Pages are the server's business; an index that it could not finish is ours."""
        broken = self.read(lambda tx: tx.all("broken_indexes"))
        return [("pages", f"index {name}", "is not valid") for (name,) in broken], True

    def backup(self, target: Path, watch: Callable[[int, int], None]) -> None:
        from ductile.store.backup.pg_transfer import export

        try:
            with psycopg.connect(self.url) as connection:
                export(connection, target, watch)
        except psycopg.Error as error:
            raise LedgerError(f"the database cannot be copied: {error}") from error

    def health(self) -> dict[str, object]:
        commits = {"commits": self._commits, "transactions": self._commits}
        return {"engine": self.engine, **commits, **self._pool.get_stats()}

    def hang_up(self) -> None:
        self._has_hung_up = True
        for connection in list(self._lent):
            hang_up(connection)
        self._boots.hang_up()
        if self._news is not None:
            self._news.hang_up()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._submitters.shutdown(wait=True)
        if self._news is not None:
            self._news.stop()
        self._boots.close()
        # Who connects to a server that does not answer is not waited for.
        self._pool.close(timeout=0.0 if self._has_hung_up else 5.0)


@contextmanager
def _answering() -> Iterator[None]:
    """What the server may do better another time is an error of the ledger's; a bug is not."""
    try:
        yield
    except (errors.DeadlockDetected, errors.SerializationFailure, errors.ProgramLimitExceeded):
        raise
    except errors.DiskFull as error:
        raise LedgerFull("the disk is full; nothing was written") from error
    except (psycopg.OperationalError, psycopg.InterfaceError) as error:
        raise LedgerBusy(f"the database does not answer: {error}") from error


def _key(kind: str, name: str) -> str:
    return f"ductile:{kind}:{name}"


def _boot_key(boot: str) -> str:
    """Also what `Tx.hold` takes: who sees to what a boot has left holds it meanwhile."""
    return _key("boot", boot)


class PostgresSchema:
    """The migrations' view of a PostgreSQL database."""

    engine = "postgres"

    def __init__(self, connection: psycopg.Connection[Row]) -> None:
        self._connection = connection

    def applied(self) -> dict[int, str]:
        with self._connection.transaction():
            self._begin()
        rows = self._connection.execute(f"SELECT number, checksum FROM {HISTORY}")
        found: dict[int, str] = dict(rows.fetchall())
        self._connection.rollback()
        return found

    def before(self, migration: Migration) -> None:
        """A database server has backups of its own; and a migration that fails changes nothing."""

    def apply(self, pending: Sequence[Migration]) -> None:
        with self._connection.transaction():
            self._begin()
            for migration in pending:
                row = self._connection.execute(
                    f"SELECT 1 FROM {HISTORY} WHERE number = %s", (migration.number,)
                ).fetchone()
                if row is not None:
                    continue
                for statement in migration.statements:
                    self._connection.execute(statement)
                self._connection.execute(
                    f"INSERT INTO {HISTORY} VALUES (%s, %s, %s)",
                    (migration.number, migration.name, migration.checksum),
                )

    def _begin(self) -> None:
        """Two nodes may start at once, and CREATE IF NOT EXISTS alone can still collide."""
        self._connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('ductile', 0))")
        self._connection.execute(HISTORY_DDL)
