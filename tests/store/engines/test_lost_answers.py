"""Connections that are lost during a commit: the ledger looks up whether it succeeded."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ductile.errors import LedgerBusy
from ductile.model import Notice
from ductile.store import notices
from ductile.store.engines import postgres
from ductile.store.engines.api import Effects, Tx
from ductile.store.engines.postgres import PostgresLedger
from tests.conftest import FakeClock
from tests.waiting import WAIT_LIMIT, until

NAME = ".s.PGSQL.5432"
COMMIT = b"COMMIT"


class Wire:
    """A proxy between a ledger and its server, which breaks at a commit on request."""

    def __init__(self, folder: Path, server: str) -> None:
        self._server, self._listening = server, socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / NAME))
        self._listening.listen()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.breaks: str | None = None
        """`before` the server receives the commit, or `after` it has answered."""
        self.refusing = False
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            if self.refusing:
                client.close()
                continue
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._server)
            self._pairs.append((client, server))
            for pump in (self._up, self._down):
                thread = threading.Thread(target=pump, args=(client, server), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _up(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if self.breaks and COMMIT in data:
                    after, self.breaks = self.breaks == "after", None
                    if after:
                        # The other pump must not tell the answer.
                        client.shutdown(socket.SHUT_RDWR)
                        server.sendall(data)
                        continue
                    break
                server.sendall(data)
        _close(client, server)

    def _down(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                client.sendall(data)
        _close(client, server)

    def cut(self) -> None:
        for pair in self._pairs:
            _close(*pair)

    def close(self) -> None:
        # A thread that waits in `accept` is woken by this, and by no `close`.
        self._listening.shutdown(socket.SHUT_RDWR)
        self.cut()
        for thread in self._threads:
            thread.join(WAIT_LIMIT)
        self._listening.close()
        for pair in self._pairs:
            for end in pair:
                end.close()


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def wire(url: str, tmp_path: Path) -> Iterator[Wire]:
    wire = Wire(tmp_path, f"{conninfo_to_dict(url)['host']}/{NAME}")
    yield wire
    wire.close()


@pytest.fixture
def ledger(url: str, wire: Wire, tmp_path: Path) -> Iterator[PostgresLedger]:
    address = {**conninfo_to_dict(url), "host": str(tmp_path)}
    ledger = PostgresLedger(make_conninfo("", **address), connections=2)
    ledger.start()
    yield ledger
    ledger.close()


class Write:
    """A transaction, how often it was run, and the notices that were announced."""

    def __init__(self, ledger: PostgresLedger, clock: FakeClock) -> None:
        self.runs, self.announced, self._now = 0, 0, clock.now()
        ledger.listen(self._hear)

    def _hear(self, effects: Effects) -> None:
        self.announced += len(effects.notices)

    def __call__(self, tx: Tx) -> str:
        self.runs += 1
        notices.post(tx, Notice("t", "test", {}), self._now)
        return "done"


def count_notices(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM notices").fetchone()
    assert row is not None
    return int(row[0])


def test_commit_with_a_lost_answer_counts_once(
    ledger: PostgresLedger, wire: Wire, url: str, clock: FakeClock
) -> None:
    work = Write(ledger, clock)
    wire.breaks = "after"
    assert ledger.write(work) == "done"
    assert (work.runs, work.announced, count_notices(url)) == (1, 1, 1)


def test_commit_that_never_reached_the_server_is_an_error(
    ledger: PostgresLedger, wire: Wire, url: str, clock: FakeClock
) -> None:
    work = Write(ledger, clock)
    wire.breaks = "before"
    with pytest.raises(LedgerBusy):
        ledger.write(work)
    assert (work.runs, work.announced, count_notices(url)) == (1, 0, 0)


def test_unfinished_commit_is_waited_for(
    ledger: PostgresLedger, wire: Wire, url: str, clock: FakeClock
) -> None:
    """A trigger that runs during the commit, until a lock is released."""
    with psycopg.connect(url, autocommit=True) as holder:
        holder.execute(
            "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END $$"
        )
        holder.execute(
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON notices"
            " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()"
        )
        holder.execute("SELECT pg_advisory_lock(1)")
        work = Write(ledger, clock)
        wire.breaks = "after"
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(ledger.write, work)
            until(lambda: waits(holder))
            with pytest.raises(TimeoutError):
                written.result(0.5)
            holder.execute("SELECT pg_advisory_unlock(1)")
            assert written.result(WAIT_LIMIT) == "done"
    assert (work.runs, work.announced, count_notices(url)) == (1, 1, 1)


def waits(connection: psycopg.Connection) -> bool:
    query = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return connection.execute(query).fetchone() is not None


def test_lost_commit_without_a_notice_is_an_error(ledger: PostgresLedger, wire: Wire) -> None:
    wire.breaks = "after"
    with pytest.raises(LedgerBusy):
        ledger.write(lambda tx: tx.run("ensure_state", plugin="p", now="x"))


def test_lost_commit_is_looked_up_for_a_limited_time(
    ledger: PostgresLedger, wire: Wire, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres, "COMMIT_CHECK_TIMEOUT", 0.3)
    monkeypatch.setattr(ledger._pool, "timeout", 0.1)
    work = Write(ledger, clock)
    wire.breaks, wire.refusing = "after", True
    with pytest.raises(LedgerBusy):
        ledger.write(work)
    wire.refusing = False


def test_connection_lost_before_the_commit_is_an_error(
    ledger: PostgresLedger, wire: Wire, url: str, clock: FakeClock
) -> None:
    first = Write(ledger, clock)

    def work(tx: Tx) -> str:
        first(tx)
        wire.cut()
        return first(tx)

    with pytest.raises(LedgerBusy):
        ledger.write(work)
    assert (first.announced, count_notices(url)) == (0, 0)
