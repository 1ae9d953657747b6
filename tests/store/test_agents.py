"""Agents: contacts, capabilities and eviction, on both engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from ductile.clock import to_text
from ductile.core.agents.heartbeat import Heartbeat
from ductile.store import agents, notices
from ductile.store.agents import AliveAgent, AliveWindow
from ductile.store.engines.api import BEGINNING, Ledger
from tests.conftest import FakeClock
from tests.store.conftest import execute

SAID = "2026-02-08T09:59:59.000000Z"
CAPABLE = {"agent_type": "planner", "capability_version": "1"}


@pytest.fixture
def harness(ledger: Ledger, clock: FakeClock) -> AgentHarness:
    return AgentHarness(ledger, clock)


class AgentHarness:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock

    def heartbeat(self, *ids: str, cluster: str = "west", said: str = SAID) -> None:
        heartbeats, now = [Heartbeat(id, cluster, said) for id in ids], self.clock.now()
        self.ledger.write(lambda tx: agents.record_heartbeats(tx, heartbeats, now))

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

    def published(self) -> list[tuple[str, str]]:
        found = self.ledger.read(lambda tx: notices.list_after(tx, BEGINNING))
        return [(notice.topic, notice.type) for notice in found]


def test_heartbeat_is_stored(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    assert harness.rows() == [
        {
            "agent_id": "a",
            "cluster_id": "west",
            "last_seen_at": SAID,
            "received_at": to_text(harness.clock.now()),
            "capabilities": None,
        }
    ]


def test_last_heartbeat_of_an_agent_counts(harness: AgentHarness) -> None:
    for turn in range(20):
        harness.clock.advance(1)
        harness.heartbeat("a", "a", cluster=f"c{turn}", said=to_text(harness.clock.now()))
    (row,) = harness.rows()
    assert row["cluster_id"] == "c19"
    assert row["last_seen_at"] == row["received_at"] == to_text(harness.clock.now())


def test_last_heartbeat_of_a_batch_counts(harness: AgentHarness) -> None:
    heartbeats = [
        Heartbeat("a", "one", SAID),
        Heartbeat("b", "x", SAID),
        Heartbeat("a", "two", SAID),
    ]
    harness.ledger.write(lambda tx: agents.record_heartbeats(tx, heartbeats, harness.clock.now()))
    assert [row["cluster_id"] for row in harness.rows()] == ["two", "x"]


def test_any_agent_id_is_stored_unchanged(harness: AgentHarness) -> None:
    ids = ["a'b", 'a"b', "a,b", "é😀", "%s", ":now", "\\", "a" * 200]
    for id in ids:
        harness.heartbeat(id, cluster=id)
    found = harness.rows()
    assert sorted(row["agent_id"] for row in found) == sorted(ids)
    assert all(row["agent_id"] == row["cluster_id"] for row in found)


def test_heartbeat_keeps_the_capabilities(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    assert harness.register("a")
    harness.heartbeat("a")
    assert harness.rows()[0]["capabilities"] == CAPABLE


def test_contact_without_a_cluster_keeps_the_known_one(harness: AgentHarness) -> None:
    now = harness.clock.now()
    harness.ledger.write(lambda tx: agents.record_contact(tx, "a", None, now, now))
    assert harness.rows()[0]["cluster_id"] == ""
    harness.ledger.write(lambda tx: agents.record_contact(tx, "a", "west", now, now))
    harness.ledger.write(lambda tx: agents.record_contact(tx, "a", None, now, now))
    assert harness.rows()[0]["cluster_id"] == "west"


def test_only_changed_capabilities_are_announced(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    assert harness.register("a")
    assert not harness.register("a")
    assert not harness.register("a", dict(reversed(CAPABLE.items())))
    assert harness.register("a", {**CAPABLE, "capability_version": "2"})
    assert harness.published() == [(agents.CAPABILITIES, "agent.registered")] * 2
    assert not harness.register("nobody")


def test_removed_capabilities_are_announced_once(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    harness.register("a")
    now = harness.clock.now()
    assert harness.ledger.write(lambda tx: agents.remove_capabilities(tx, "a", now))
    assert not harness.ledger.write(lambda tx: agents.remove_capabilities(tx, "a", now))
    assert harness.published()[1:] == [(agents.CAPABILITIES, "agent.removed")]
    assert harness.rows()[0]["received_at"] is not None


def test_overdue_agents_are_outside_of_the_window(harness: AgentHarness) -> None:
    harness.heartbeat("future")
    harness.clock.moment -= timedelta(seconds=200)
    harness.heartbeat("past")
    harness.clock.advance(100)
    harness.heartbeat("here")
    assert [agent.agent_id for agent in harness.overdue()] == ["future", "past"]


def test_eviction_keeps_the_row_and_deletes_capabilities(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    harness.register("a")
    harness.clock.advance(91)
    (agent,) = harness.overdue()
    assert harness.evict(agent)
    (row,) = harness.rows()
    assert (row["received_at"], row["capabilities"], row["last_seen_at"]) == (None, None, SAID)
    assert harness.published()[-1] == (agents.CAPABILITIES, "agent.removed")
    assert harness.overdue() == []


def test_newer_contact_prevents_eviction(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    harness.clock.advance(91)
    (agent,) = harness.overdue()
    harness.heartbeat("a")
    assert not harness.evict(agent)
    assert harness.rows()[0]["received_at"] == to_text(harness.clock.now())
    assert harness.published() == []


def test_two_nodes_evict_an_agent_once(open_ledger: Callable[[], Ledger], clock: FakeClock) -> None:
    first = AgentHarness(open_ledger(), clock)
    # Both threads share the one writer of SQLite; on PostgreSQL they are two nodes.
    other = AgentHarness(open_ledger(), clock) if first.ledger.engine == "postgres" else first
    ids = [f"a{number:03}" for number in range(50)]
    first.heartbeat(*ids)
    clock.advance(91)
    silent = first.overdue()
    evicted: list[str] = []

    def work(harness: AgentHarness) -> None:
        now = clock.now()
        evicted.extend(
            harness.ledger.write(
                lambda tx: [agent.agent_id for agent in silent if agents.evict(tx, agent, now)]
            )
        )

    threads = [threading.Thread(target=work, args=(harness,)) for harness in (first, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(evicted) == ids
    assert len(first.published()) == len(ids)


def test_agents_are_paged_by_id(harness: AgentHarness) -> None:
    harness.heartbeat(*(f"a{number}" for number in range(5)))
    assert [row["agent_id"] for row in harness.rows(limit=2)] == ["a0", "a1"]
    assert [row["agent_id"] for row in harness.rows(after="a1", limit=2)] == ["a2", "a3"]


def test_alive_agents_are_listed_latest_first(harness: AgentHarness) -> None:
    for id in ("old", "b", "a"):
        harness.heartbeat(id)
        harness.clock.advance(60)
    harness.clock.advance(-30)
    found = harness.ledger.read(lambda tx: agents.list_alive(tx, harness.span(), 10))
    assert [agent.agent_id for agent in found] == ["a", "b"]
    assert [row["agent_id"] for row in harness.rows(within=harness.span())] == ["a", "b"]
    assert len(harness.ledger.read(lambda tx: agents.list_alive(tx, harness.span(), 1))) == 1


def test_unreadable_capabilities_are_none(harness: AgentHarness) -> None:
    harness.heartbeat("a")
    for text in ("not json", "[]", "7", ""):
        execute(harness.ledger, f"UPDATE gateway_heartbeats SET capabilities = '{text}'")
        assert harness.rows()[0]["capabilities"] is None, text


def test_row_with_only_the_documented_columns_is_not_alive(harness: AgentHarness) -> None:
    execute(
        harness.ledger,
        "INSERT INTO gateway_heartbeats (agent_id, cluster_id, last_seen_at)"
        " VALUES ('script', 'west', '2026-02-08 10:00:00')",
    )
    assert [row["agent_id"] for row in harness.rows()] == ["script"]
    assert harness.rows(within=harness.span()) == []
    assert harness.overdue() == []
