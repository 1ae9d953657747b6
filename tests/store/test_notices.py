"""Notices: every reader sees them in the same order, on both engines."""

from __future__ import annotations

import ast
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import ductile
from ductile.clock import to_text
from ductile.model import Notice
from ductile.store import nodes, notices
from ductile.store.engines.api import BEGINNING, Ledger, NodeNews, Position, StoredNotice, Tx
from ductile.store.engines.pg import notify as pg_notify
from ductile.store.engines.postgres import PostgresLedger
from ductile.store.nodes import NodeRequest, RequestKind
from tests.conftest import FakeClock
from tests.store.conftest import execute
from tests.waiting import WAIT_LIMIT

NOW = FakeClock().now()


def post(ledger: Ledger, name: str, pause: float = 0.0) -> None:
    def work(tx: Tx) -> None:
        notices.post(tx, Notice("jobs", name, {}), NOW)
        if pause:
            time.sleep(pause)

    ledger.write(work)


def after(ledger: Ledger, position: Position = BEGINNING, limit: int = 1000) -> list[StoredNotice]:
    return ledger.read(lambda tx: notices.list_after(tx, position, limit))


def names(found: list[StoredNotice]) -> list[str]:
    return [notice.type for notice in found]


def test_notices_are_read_in_commit_order(ledger: Ledger) -> None:
    for name in "abcde":
        post(ledger, name)
    assert names(after(ledger)) == list("abcde")
    second = after(ledger, limit=2)[-1]
    assert names(after(ledger, second.position)) == list("cde")


def test_position_survives_serialization() -> None:
    assert str(Position(0, 12)) == "12"
    assert str(Position(7, 12)) == "7-12"


def test_last_position_and_earlier_ones(ledger: Ledger) -> None:
    assert ledger.read(notices.last_position) == BEGINNING
    for name in "abc":
        post(ledger, name)
    stream = after(ledger)
    assert ledger.read(notices.last_position) == stream[-1].position
    assert ledger.read(lambda tx: notices.last_position(tx, 1)) == stream[1].position
    assert names(after(ledger, ledger.read(lambda tx: notices.last_position(tx, 2)))) == ["b", "c"]
    assert ledger.read(lambda tx: notices.last_position(tx, 3)) == BEGINNING


def test_reader_misses_nothing_and_sees_nothing_twice(
    open_ledger: Callable[[], Ledger],
) -> None:
    ledger = open_ledger()
    other = open_ledger() if isinstance(ledger, PostgresLedger) else ledger
    chance, done = random.Random(1), threading.Event()
    seen: list[StoredNotice] = []

    def read_on() -> None:
        while True:
            over = done.is_set()
            found = after(ledger, seen[-1].position if seen else BEGINNING, limit=7)
            seen.extend(found)
            if over and not found:
                return

    reader = threading.Thread(target=read_on)
    reader.start()
    pauses = [chance.choice((0.0, 0.0, 0.002, 0.01)) for _ in range(400)]
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda n: post((ledger, other)[n % 2], f"n{n}", pauses[n]), range(len(pauses)))
        )
    done.set()
    reader.join(WAIT_LIMIT)
    assert not reader.is_alive()
    assert sorted(names(seen)) == sorted(f"n{n}" for n in range(len(pauses)))
    assert seen == after(ledger)


@pytest.fixture
def postgres_ledger(ledger: Ledger) -> PostgresLedger:
    if not isinstance(ledger, PostgresLedger):
        pytest.skip("SQLite has one writer")
    return ledger


def test_notices_after_an_open_transaction_are_held_back(
    postgres_ledger: PostgresLedger,
) -> None:
    ledger, posted, go_on = postgres_ledger, threading.Event(), threading.Event()

    def slowly(tx: Tx) -> None:
        notices.post_with_id(tx, Notice("jobs", "older", {}), NOW)
        posted.set()
        assert go_on.wait(WAIT_LIMIT)

    older = threading.Thread(target=ledger.write, args=(slowly,))
    older.start()
    assert posted.wait(WAIT_LIMIT)
    post(ledger, "younger")
    assert names(after(ledger)) == []
    assert ledger.read(notices.last_position) == BEGINNING
    assert ledger.read(notices.has_held_back)
    go_on.set()
    older.join(WAIT_LIMIT)
    assert names(after(ledger)) == ["older", "younger"]
    assert not ledger.read(notices.has_held_back)


def test_stream_of_a_restored_database_continues(
    postgres_ledger: PostgresLedger, open_ledger: Callable[[], Ledger]
) -> None:
    post(postgres_ledger, "before")
    execute(postgres_ledger, "UPDATE notices SET xact = 4000000000000")
    assert names(after(postgres_ledger)) == []
    restored = open_ledger()
    post(restored, "since")
    assert names(after(restored)) == ["before", "since"]


@pytest.fixture
def never_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pg_notify, "POLL", 10 * WAIT_LIMIT)
    monkeypatch.setattr(pg_notify, "QUIET_POLL", 10 * WAIT_LIMIT)
    monkeypatch.setattr(pg_notify, "RECONNECT", 0.01)


NO_NODE: Any = None


class Reader:
    """A node that follows the stream, or does not."""

    def __init__(self, ledger: Ledger, *, follows: bool = True) -> None:
        self._follows = follows
        self._read = threading.Event()
        self.looks = 0
        self.ready, self.requests = threading.Event(), threading.Event()
        assert ledger.watch_nodes(self)
        self.wait_for_look()
        assert self.ready.wait(WAIT_LIMIT), "what came before the connection was missed"
        assert self.requests.wait(WAIT_LIMIT)
        self.ready.clear()
        self.requests.clear()

    def is_followed(self) -> bool:
        return self._follows

    def read_notices(self) -> bool:
        self.looks += 1
        self._read.set()
        return False

    def on_ready(self) -> None:
        self.ready.set()

    def on_requests(self) -> None:
        self.requests.set()

    def wait_for_look(self) -> None:
        assert self._read.wait(WAIT_LIMIT)
        self._read.clear()


@pytest.mark.usefixtures("never_polling")
def test_every_node_that_follows_is_woken_by_a_notice(
    postgres_ledger: PostgresLedger, open_ledger: Callable[[], Ledger]
) -> None:
    other = open_ledger()
    readers = [Reader(postgres_ledger), Reader(other)]
    postgres_ledger.follow_notices()
    other.follow_notices()
    post(other, "news")
    for reader in readers:
        reader.wait_for_look()


@pytest.mark.usefixtures("never_polling")
def test_nodes_that_do_not_follow_read_nothing(
    postgres_ledger: PostgresLedger, open_ledger: Callable[[], Ledger]
) -> None:
    other = open_ledger()
    readers = [Reader(ledger, follows=False) for ledger in (postgres_ledger, other)]
    post(other, "nobody follows")
    other.tell_nodes(NodeNews.READY)
    assert readers[0].ready.wait(WAIT_LIMIT)
    assert [reader.looks for reader in readers] == [1, 1]
    assert not readers[1].ready.is_set(), "a node does not wake itself"


@pytest.mark.usefixtures("never_polling")
def test_requests_wake_the_other_nodes(
    postgres_ledger: PostgresLedger, open_ledger: Callable[[], Ledger]
) -> None:
    other = open_ledger()
    reader, _ = Reader(postgres_ledger, follows=False), Reader(other, follows=False)
    request = NodeRequest("r", "boot", RequestKind.CANCEL, "j", "cancelled")
    other.write(lambda tx: nodes.add_request(tx, request, to_text(NOW)))
    assert reader.requests.wait(WAIT_LIMIT)


@pytest.mark.usefixtures("never_polling")
def test_node_is_woken_again_after_losing_its_connections(postgres_ledger: PostgresLedger) -> None:
    reader = Reader(postgres_ledger)
    execute(
        postgres_ledger,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query ~ 'LISTEN|pg_notify'",
    )
    reader.wait_for_look()
    post(postgres_ledger, "news")
    reader.wait_for_look()


@pytest.mark.usefixtures("never_polling")
def test_ledger_closes_after_the_connection_for_wake_ups_was_lost(
    postgres_ledger: PostgresLedger,
) -> None:
    Reader(postgres_ledger)
    execute(
        postgres_ledger,
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid() AND query ~ 'pg_notify'",
    )
    closing = threading.Thread(target=postgres_ledger.close, daemon=True)
    closing.start()
    closing.join(WAIT_LIMIT)
    assert not closing.is_alive(), "the thread that waits for news does not end"


def test_sqlite_needs_no_notice_watch(ledger: Ledger) -> None:
    if isinstance(ledger, PostgresLedger):
        pytest.skip("nodes share a database")
    assert not ledger.watch_nodes(NO_NODE)


def test_every_topic_of_the_source_is_known() -> None:
    """A topic that is missing from the list could not be subscribed to."""
    dynamic = {"self._topic", "core.build_topic(row[1])"}
    seen = set()
    for path in sorted(Path(ductile.__file__).parent.rglob("*.py")):
        source = path.read_text()
        for call in ast.walk(ast.parse(source)) if "Notice(" in source else ():
            if not isinstance(call, ast.Call) or ast.unparse(call.func) != "Notice":
                continue
            text = ast.unparse(call.args[0])
            seen.add(text)
            if text in dynamic:
                continue
            module = import_module(f"ductile.{'.'.join(_module_name(path))}")
            assert notices.is_topic(eval(text, vars(module))), (path, text)
    assert dynamic < seen


def _module_name(path: Path) -> tuple[str, ...]:
    return path.relative_to(Path(ductile.__file__).parent).with_suffix("").parts
