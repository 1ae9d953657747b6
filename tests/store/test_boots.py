"""Boots: which are alive, and how a boot is held again after its session was ended."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from ductile.errors import LedgerBusy, LedgerError
from ductile.store import boots
from ductile.store.engines.api import Ledger
from ductile.store.engines.pg.connection import has_own_session, with_keepalives
from ductile.store.engines.postgres import PostgresLedger
from tests.conftest import FakeClock
from tests.postgres import Server
from tests.waiting import WAIT_LIMIT, until

HOLDERS = """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND database =
  (SELECT oid FROM pg_database WHERE datname = current_database())
"""


def begin(ledger: Ledger, id: str, now: datetime) -> None:
    ledger.write(lambda tx: boots.begin_boot(tx, id=id, pid=1, version="1", now=now))


def under_way(ledger: Ledger, id: str) -> bool:
    return ledger.read(lambda tx: boots.is_open(tx, id))


def test_boot_is_open_until_it_ends(ledger: Ledger, clock: FakeClock) -> None:
    begin(ledger, "a", clock.now())
    assert under_way(ledger, "a")
    ledger.write(lambda tx: boots.end_boot(tx, "a", clock.now()))
    assert not under_way(ledger, "a")
    assert not under_way(ledger, "of nobody")


def test_boot_that_was_taken_for_dead_can_be_reopened(ledger: Ledger, clock: FakeClock) -> None:
    begin(ledger, "a", clock.now())
    ledger.write(lambda tx: boots.end_boot(tx, "a", clock.now()))
    begin(ledger, "a", clock.now())
    assert under_way(ledger, "a")


# PostgreSQL: a lock of a session


@pytest.fixture
def url(postgres: Server) -> str:
    return postgres.database(empty=True)


@pytest.fixture
def node(url: str) -> Iterator[Callable[[], PostgresLedger]]:
    """Opens the ledger as another node."""
    opened: list[PostgresLedger] = []

    def node() -> PostgresLedger:
        ledger = PostgresLedger(url, connections=2)
        ledger.start()
        opened.append(ledger)
        return ledger

    yield node
    for ledger in opened:
        ledger.close()


Node = Callable[[], PostgresLedger]


def holders(url: str) -> list[int]:
    with psycopg.connect(url) as connection:
        return [pid for (pid,) in connection.execute(HOLDERS)]


def cut(url: str) -> None:
    """The server terminates every session that holds a boot."""
    with psycopg.connect(url, autocommit=True) as connection:
        for pid in holders(url):
            connection.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))


def test_repeated_claims_hold_a_boot_once(url: str, node: Node) -> None:
    ours, other = node(), node()
    for _ in range(3):
        ours.claim_boot("a")
    assert len(holders(url)) == 1
    assert not other.boot_is_dead("a")


def test_boot_is_dead_after_its_session_ended_until_claimed_again(url: str, node: Node) -> None:
    ours, other = node(), node()
    ours.claim_boot("a")
    cut(url)
    assert other.boot_is_dead("a")
    ours.claim_boot("a")
    assert not other.boot_is_dead("a")


def test_new_session_locks_all_boots_again(url: str, node: Node) -> None:
    ours, other = node(), node()
    ours.claim_boot("a")
    ours.claim_boot("b")
    cut(url)
    ours.claim_boot("b")
    assert not other.boot_is_dead("a")


def test_boot_held_by_another_session_cannot_be_claimed(url: str, node: Node) -> None:
    ours, ghost = node(), node()
    ghost.claim_boot("a")
    with pytest.raises(LedgerBusy, match="another session"):
        ours.claim_boot("a")
    ghost.close()
    ours.claim_boot("a")
    assert not node().boot_is_dead("a")


def test_concurrent_checks_of_a_dead_boot_agree(node: Node) -> None:
    nodes = [node() for _ in range(3)]
    ready = threading.Barrier(3)

    def look(ledger: PostgresLedger) -> list[bool]:
        ready.wait(WAIT_LIMIT)
        return [ledger.boot_is_dead("nobody") for _ in range(100)]

    with ThreadPoolExecutor(3) as pool:
        assert {dead for seen in pool.map(look, nodes) for dead in seen} == {True}


def test_recovery_holds_a_boot_against_its_owner(node: Node) -> None:
    ours, other = node(), node()

    def work(tx: object) -> None:
        assert tx.hold("boot", "a", wait=False)  # type: ignore[attr-defined]
        with pytest.raises(LedgerBusy):
            ours.claim_boot("a")

    other.write(work)
    ours.claim_boot("a")
    assert not other.write(lambda tx: tx.hold("boot", "a", wait=False))


def test_boot_is_held_by_a_pooled_session_if_the_server_refuses_more(
    url: str, postgres: Server
) -> None:
    address = {**conninfo_to_dict(url), "user": "guest"}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN CONNECTION LIMIT 2")
        connection.execute(f'ALTER DATABASE "{address["dbname"]}" OWNER TO guest')
        connection.execute("GRANT ALL ON SCHEMA public TO guest")
    ours = PostgresLedger(psycopg.conninfo.make_conninfo("", **address), connections=2)
    other = PostgresLedger(url)
    try:
        ours.start()
        # Both sessions belong to the pool, so that none is left for the boot.
        with ours._pool.connection(), ours._pool.connection():
            pass
        ours.claim_boot("a")
        other.start()
        assert not other.boot_is_dead("a")
        assert ours.read(lambda tx: tx.one("has_ready")) is None
        cut(url)
        assert other.boot_is_dead("a")
        until(lambda: claimed(ours, "a"))
        assert not other.boot_is_dead("a")
    finally:
        ours.close()
        other.close()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'ALTER DATABASE "{address["dbname"]}" OWNER TO CURRENT_USER')
            connection.execute("DROP OWNED BY guest")
            connection.execute("DROP ROLE guest")


def claimed(ledger: Ledger, boot: str) -> bool:
    try:
        ledger.claim_boot(boot)
    except LedgerBusy:
        return False
    return True


def test_sessions_that_the_server_has_ended_are_replaced(url: str, node: Node) -> None:
    ours = node()
    ours.claim_boot("a")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert ours.read(lambda tx: tx.one("has_ready")) is None
    until(lambda: claimed(ours, "a"))


def test_server_keepalives_are_set(node: Node) -> None:
    """On a unix socket the values read as 0, so the statements are checked."""
    ours = node()
    source = "SELECT source FROM pg_settings WHERE name = 'tcp_keepalives_idle'"
    with ours._pool.connection() as connection:
        assert connection.execute(source).fetchone() == ("session",)


def test_keepalives_in_the_address_are_kept() -> None:
    given = conninfo_to_dict(with_keepalives("postgresql://db.example/d?keepalives_idle=60"))
    assert (given["keepalives_idle"], given["host"]) == ("60", "db.example")
    assert given["tcp_user_timeout"] == "9000"


def test_invalid_address_is_refused_without_quoting_it() -> None:
    with pytest.raises(LedgerError) as caught:
        PostgresLedger("host=db hunter22")
    assert "hunter22" not in caught.value.message


class _Pooler:
    """A pooler in transaction mode: the server session of an idle client goes to the next one."""

    def __init__(self, *, keeps_sessions: bool) -> None:
        self._keeps_sessions, self._owners = keeps_sessions, dict[int, "_Client"]()

    def session_of(self, client: _Client) -> int:
        """The server's pid for this statement."""
        for pid, owner in self._owners.items():
            if owner is client or not (self._keeps_sessions or owner.in_transaction):
                self._owners[pid] = client
                return pid
        pid = 100 + len(self._owners)
        self._owners[pid] = client
        return pid


class _Client:
    def __init__(self, pooler: _Pooler) -> None:
        self._pooler, self.in_transaction = pooler, False
        self._pid = 0

    def execute(self, statement: str) -> _Client:
        if statement in ("BEGIN", "ROLLBACK"):
            self.in_transaction = statement == "BEGIN"
        self._pid = self._pooler.session_of(self)
        return self

    def fetchone(self) -> tuple[int]:
        return (self._pid,)


@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_pooler_that_does_not_keep_sessions_is_recognized(keeps_sessions: bool) -> None:
    pooler = _Pooler(keeps_sessions=keeps_sessions)
    first: Any = _Client(pooler)
    second: Any = _Client(pooler)
    assert has_own_session(first, second) is keeps_sessions


def test_database_that_cannot_store_every_text_is_refused(postgres: Server) -> None:
    url = postgres.database(empty=True)
    name = f"ascii_{conninfo_to_dict(url)['dbname']}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' TEMPLATE template0 "
            "LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    ledger = PostgresLedger(make_conninfo(url, dbname=name))
    with pytest.raises(LedgerError, match="the encoding SQL_ASCII"):
        ledger.start()
    ledger.close()


def test_ledger_behind_such_a_pooler_is_refused(
    postgres: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = PostgresLedger(postgres.database())
    monkeypatch.setattr("ductile.store.engines.pg.connection.has_own_session", lambda *_: False)
    with pytest.raises(LedgerError, match="pooler in transaction mode"):
        ledger.start()
    ledger.close()
