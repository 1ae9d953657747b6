"""Agents: contacts, capabilities and eviction, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.core.agents.heartbeat import Beat
from ductile.store import agents, notices
from ductile.store.agents import AliveAgent, AliveWindow
from ductile.store.engines.api import BEGINNING, Ledger
from tests.conftest import FakeClock
from tests.store.conftest import execute

SAID = "2026-02-08T09:59:59.000000Z"
CAPABLE = {"agent_type": "planner", "capability_version": "1"}


@pytest.fixture
def house(ledger: Ledger, clock: FakeClock) -> House:
    return House(ledger, clock)


class House:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock

    def beat(self, *ids: str, cluster: str = "west", said: str = SAID) -> None:
        beats, now = [Beat(id, cluster, said) for id in ids], self.clock.now()
        self.ledger.write(lambda tx: agents.record_heartbeats(tx, beats, now))

    def rows(self, **which: Any) -> list[dict[str, Any]]:
        return self.ledger.read(lambda tx: agents.list_agents(tx, **which))

    def register(self, id: str, capabilities: dict[str, Any] = CAPABLE) -> bool:
        now = self.clock.now()
        return self.ledger.write(
            lambda tx: agents.register_capabilities(tx, id, capabilities, capabilities, now)
        )

    def overdue(self) -> list[AliveAgent]:
        span = self.span()
        return self.ledger.read(lambda tx: agents.list_overdue(tx, span))

    def span(self) -> AliveWindow:
        reach = timedelta(seconds=90)
        return AliveWindow(to_text(self.clock.now() - reach), to_text(self.clock.now() + reach))

    def evict(self, agent: AliveAgent) -> bool:
        now = self.clock.now()
        return self.ledger.write(lambda tx: agents.evict(tx, agent, now))

    def told(self) -> list[tuple[str, str]]:
        found = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        return [(notice.topic, notice.type) for notice in found]


def test_heartbeat_is_stored(house: House) -> None:
    house.beat("a")
    assert house.rows() == [
        {
            "agent_id": "a",
            "cluster_id": "west",
            "last_seen_at": SAID,
            "received_at": to_text(house.clock.now()),
            "capabilities": None,
        }
    ]


def test_last_heartbeat_of_an_agent_counts(house: House) -> None:
    for turn in range(20):
        house.clock.advance(1)
        house.beat("a", "a", cluster=f"c{turn}", said=to_text(house.clock.now()))
    (row,) = house.rows()
    assert row["cluster_id"] == "c19"
    assert row["last_seen_at"] == row["received_at"] == to_text(house.clock.now())


def test_last_heartbeat_of_a_batch_counts(house: House) -> None:
    beats = [Beat("a", "one", SAID), Beat("b", "x", SAID), Beat("a", "two", SAID)]
    house.ledger.write(lambda tx: agents.record_heartbeats(tx, beats, house.clock.now()))
    assert [row["cluster_id"] for row in house.rows()] == ["two", "x"]


def test_any_agent_id_is_stored_unchanged(house: House) -> None:
    ids = ["a'b", 'a"b', "a,b", "é😀", "%s", ":now", "\\", "a" * 200]
    for id in ids:
        house.beat(id, cluster=id)
    found = house.rows()
    assert sorted(row["agent_id"] for row in found) == sorted(ids)
    assert all(row["agent_id"] == row["cluster_id"] for row in found)


def test_heartbeat_keeps_the_capabilities(house: House) -> None:
    house.beat("a")
    assert house.register("a")
    house.beat("a")
    assert house.rows()[0]["capabilities"] == CAPABLE


def test_contact_without_a_cluster_keeps_the_known_one(house: House) -> None:
    now = house.clock.now()
    house.ledger.write(lambda tx: agents.record_contact(tx, "a", None, now, now))
    assert house.rows()[0]["cluster_id"] == ""
    house.ledger.write(lambda tx: agents.record_contact(tx, "a", "west", now, now))
    house.ledger.write(lambda tx: agents.record_contact(tx, "a", None, now, now))
    assert house.rows()[0]["cluster_id"] == "west"


def test_only_changed_capabilities_are_announced(house: House) -> None:
    house.beat("a")
    assert house.register("a")
    assert not house.register("a")
    assert not house.register("a", dict(reversed(CAPABLE.items())))
    assert house.register("a", {**CAPABLE, "capability_version": "2"})
    assert house.told() == [(agents.CAPABILITIES, "agent.registered")] * 2
    assert not house.register("nobody")


def test_removed_capabilities_are_announced_once(house: House) -> None:
    house.beat("a")
    house.register("a")
    now = house.clock.now()
    assert house.ledger.write(lambda tx: agents.remove_capabilities(tx, "a", now))
    assert not house.ledger.write(lambda tx: agents.remove_capabilities(tx, "a", now))
    assert house.told()[1:] == [(agents.CAPABILITIES, "agent.removed")]
    assert house.rows()[0]["received_at"] is not None


def test_overdue_agents_are_outside_of_the_window(house: House) -> None:
    house.beat("future")
    house.clock.moment -= timedelta(seconds=200)
    house.beat("past")
    house.clock.advance(100)
    house.beat("here")
    assert [agent.agent_id for agent in house.overdue()] == ["future", "past"]


def test_eviction_keeps_the_row_and_deletes_capabilities(house: House) -> None:
    house.beat("a")
    house.register("a")
    house.clock.advance(91)
    (agent,) = house.overdue()
    assert house.evict(agent)
    (row,) = house.rows()
    assert (row["received_at"], row["capabilities"], row["last_seen_at"]) == (None, None, SAID)
    assert house.told()[-1] == (agents.CAPABILITIES, "agent.removed")
    assert house.overdue() == []


def test_newer_contact_prevents_eviction(house: House) -> None:
    house.beat("a")
    house.clock.advance(91)
    (agent,) = house.overdue()
    house.beat("a")
    assert not house.evict(agent)
    assert house.rows()[0]["received_at"] == to_text(house.clock.now())
    assert house.told() == []


def test_two_nodes_evict_an_agent_once(open_ledger: Callable[[], Ledger], clock: FakeClock) -> None:
    first = House(open_ledger(), clock)
    # SQLite has one writer, whom both threads share; PostgreSQL has two nodes.
    other = House(open_ledger(), clock) if first.ledger.engine == "postgres" else first
    ids = [f"a{number:03}" for number in range(50)]
    first.beat(*ids)
    clock.advance(91)
    silent = first.overdue()
    evicted: list[str] = []

    def work(house: House) -> None:
        now = clock.now()
        evicted.extend(
            house.ledger.write(
                lambda tx: [agent.agent_id for agent in silent if agents.evict(tx, agent, now)]
            )
        )

    threads = [threading.Thread(target=work, args=(house,)) for house in (first, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(evicted) == ids
    assert len(first.told()) == len(ids)


def test_agents_are_paged_by_id(house: House) -> None:
    house.beat(*(f"a{number}" for number in range(5)))
    assert [row["agent_id"] for row in house.rows(limit=2)] == ["a0", "a1"]
    assert [row["agent_id"] for row in house.rows(after="a1", limit=2)] == ["a2", "a3"]


def test_alive_agents_are_listed_latest_first(house: House) -> None:
    for id in ("old", "b", "a"):
        house.beat(id)
        house.clock.advance(60)
    house.clock.advance(-30)
    found = house.ledger.read(lambda tx: agents.list_alive(tx, house.span(), 10))
    assert [agent.agent_id for agent in found] == ["a", "b"]
    assert [row["agent_id"] for row in house.rows(within=house.span())] == ["a", "b"]
    assert len(house.ledger.read(lambda tx: agents.list_alive(tx, house.span(), 1))) == 1


def test_unreadable_capabilities_are_none(house: House) -> None:
    house.beat("a")
    for text in ("not json", "[]", "7", ""):
        execute(house.ledger, f"UPDATE gateway_heartbeats SET capabilities = '{text}'")
        assert house.rows()[0]["capabilities"] is None, text


def test_row_with_only_the_documented_columns_is_not_alive(house: House) -> None:
    execute(
        house.ledger,
        "INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at)"
        " VALUES ('script', 'west', '2026-02-08 10:00:00')",
    )
    assert [row["agent_id"] for row in house.rows()] == ["script"]
    assert house.rows(within=house.span()) == []
    assert house.overdue() == []
