"""Heartbeats: which agents are alive, which are evicted, and what survives a restart."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from ductile.agents import heartbeats
from ductile.agents.heartbeats import (
    CHECK_INTERVAL_MS,
    EVICTION_THRESHOLD_SECONDS,
    HeartbeatManager,
    HeartbeatManagerUnavailable,
    LastSeen,
    TooManyAgents,
)
from ductile.clock import to_text
from ductile.core.agents.heartbeat import Heartbeat
from ductile.errors import LedgerFull
from ductile.store import agents
from tests.agents.harness import AgentsHarness, LogCapture
from tests.store.conftest import execute

SENT_AT = "2001-01-01T00:00:00.000000Z"
"""By an agent's clock, which is ignored."""


def heartbeat(harness: AgentsHarness, *ids: str) -> None:
    """Like the route: in memory, then in the ledger."""
    for id in ids:
        harness.agents.heartbeats.record_heartbeat(id, "west")
    heartbeats, now = [Heartbeat(id, "west", SENT_AT) for id in ids], harness.clock.now()
    harness.ledger.write(lambda tx: agents.record_heartbeats(tx, heartbeats, now))


def check(harness: AgentsHarness) -> float:
    return harness.agents.heartbeats.tick(harness.clock.now())


def test_heartbeat_is_recorded_in_the_state(harness: AgentsHarness) -> None:
    manager = harness.agents.heartbeats
    assert manager.record_heartbeat("agent-42", "cluster-west") == "ok"
    assert manager.state == {"agent-42": LastSeen(harness.clock.now(), "cluster-west")}


def test_stopped_manager_refuses_heartbeats(harness: AgentsHarness) -> None:
    down = HeartbeatManager(harness.ledger, harness.clock)
    with pytest.raises(HeartbeatManagerUnavailable):
        down.record_heartbeat("agent-42", "cluster-west")
    harness.agents.heartbeats.stop()
    with pytest.raises(HeartbeatManagerUnavailable):
        harness.agents.heartbeats.record_heartbeat("agent-42", "cluster-west")
    assert HeartbeatManagerUnavailable.http_status == 503


def test_agent_silent_for_91_seconds_is_evicted(harness: AgentsHarness, log: LogCapture) -> None:
    heartbeat(harness, "agent-99")
    harness.agents.capabilities.register_agent("agent-99", {"agent_type": "x"})
    seen = to_text(harness.clock.now())
    harness.clock.advance(91)
    check(harness)
    assert harness.agents.heartbeats.state == {}
    assert harness.agents.capabilities.get_agent("agent-99") is None
    (line,) = log.lines()
    assert (line["level"], line["message"]) == ("info", "agent evicted")
    assert (line["agent_id"], line["last_seen"]) == ("agent-99", seen)
    assert harness.read_notices("gateway:capabilities")[-1] == (
        "agent.removed",
        {
            "agent_id": "agent-99",
            "cluster_id": "west",
            "reason": "evicted",
            "last_seen": seen,
            "limit_seconds": 90,
        },
    )


def test_agent_silent_for_90_seconds_is_not_evicted(
    harness: AgentsHarness, log: LogCapture
) -> None:
    heartbeat(harness, "agent-99")
    harness.clock.advance(90)
    check(harness)
    assert "agent-99" in harness.agents.heartbeats.state
    assert log.lines() == []


def test_eviction_follows_the_constants(
    harness: AgentsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (EVICTION_THRESHOLD_SECONDS, CHECK_INTERVAL_MS) == (90, 30_000)
    monkeypatch.setattr(heartbeats, "EVICTION_THRESHOLD_SECONDS", 10)
    monkeypatch.setattr(heartbeats, "CHECK_INTERVAL_MS", 7_000)
    heartbeat(harness, "a")
    harness.clock.advance(11)
    assert check(harness) == 7.0
    assert harness.agents.heartbeats.state == {}
    assert harness.rows()["a"]["received_at"] is None


def test_evicted_agent_keeps_its_row(harness: AgentsHarness) -> None:
    heartbeat(harness, "a")
    harness.clock.advance(91)
    check(harness)
    assert harness.rows()["a"]["last_seen_at"] == SENT_AT


def test_eviction_uses_the_gateways_clock(harness: AgentsHarness) -> None:
    """The column contains what the agent sent, which may be anything."""
    heartbeat(harness, "a")
    check(harness)
    row = harness.rows()["a"]
    assert (row["last_seen_at"], row["received_at"]) == (SENT_AT, to_text(harness.clock.now()))
    assert "a" in harness.agents.heartbeats.state


def test_state_is_rebuilt_from_received_at(harness: AgentsHarness) -> None:
    heartbeat(harness, "dead")
    harness.clock.advance(60)
    heartbeat(harness, "alive")
    received = harness.clock.now()
    harness.clock.advance(40)
    harness.start()
    assert harness.agents.heartbeats.state == {"alive": LastSeen(received, "west")}


def test_unparsable_time_does_not_prevent_a_start(harness: AgentsHarness) -> None:
    heartbeat(harness, "a", "b")
    text = to_text(harness.clock.now())[:-1] + "?"
    execute(
        harness.ledger,
        f"UPDATE gateway_heartbeats SET received_at = '{text}' WHERE agent_id = 'a'",
    )
    harness.start()
    assert harness.agents.heartbeats.state.keys() == {"b"}


def test_agent_silent_during_downtime_is_evicted_at_the_next_start(
    harness: AgentsHarness, log: LogCapture
) -> None:
    heartbeat(harness, "dead")
    harness.clock.advance(3600)
    harness.start()
    check(harness)
    assert [line["agent_id"] for line in log.lines()] == ["dead"]
    harness.start()
    check(harness)
    assert log.lines() == []


def test_evicted_agent_may_return(harness: AgentsHarness, log: LogCapture) -> None:
    heartbeat(harness, "a")
    harness.clock.advance(91)
    check(harness)
    heartbeat(harness, "a")
    assert "a" in harness.agents.heartbeats.state
    check(harness)
    assert len(log.lines()) == 1
    harness.clock.advance(91)
    check(harness)
    assert len(log.lines()) == 1


def test_agent_of_another_node_is_not_evicted(harness: AgentsHarness, log: LogCapture) -> None:
    heartbeat(harness, "a")
    other = AgentsHarness(harness.ledger, harness.clock)
    harness.clock.advance(60)
    heartbeat(other, "a")
    harness.clock.advance(60)
    check(harness)
    check(other)
    assert log.lines() == []
    harness.clock.advance(60)
    check(harness)
    check(other)
    assert [line["message"] for line in log.lines()] == ["agent evicted"]


def test_agent_stays_alive_while_the_ledger_is_unavailable(
    harness: AgentsHarness, log: LogCapture
) -> None:
    heartbeat(harness, "a")
    harness.clock.advance(91)
    harness.agents.heartbeats.record_heartbeat("a", "west")
    check(harness)
    assert "a" in harness.agents.heartbeats.state
    assert log.lines() == []


def test_clock_set_back_does_not_keep_agents_alive(harness: AgentsHarness, log: LogCapture) -> None:
    heartbeat(harness, "a")
    harness.clock.moment -= timedelta(days=1)
    check(harness)
    assert harness.agents.heartbeats.state == {}
    assert [line["agent_id"] for line in log.lines()] == ["a"]


def test_many_agents_are_evicted_in_batches(
    harness: AgentsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "BATCH", 10)
    heartbeat(harness, *(f"a{number:03}" for number in range(35)))
    harness.clock.advance(91)
    check(harness)
    assert len(harness.read_notices("gateway:capabilities")) == 35


def test_failed_eviction_is_repeated_at_the_next_check(
    harness: AgentsHarness, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat(harness, "a")
    harness.clock.advance(91)

    def full(_work: object) -> None:
        raise LedgerFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(harness.ledger, "write", full)
        with pytest.raises(LedgerFull):
            check(harness)
    assert log.lines() == []
    check(harness)
    assert len(log.lines()) == 1


def test_number_of_agents_is_limited(
    harness: AgentsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeats, "MAX_AGENTS", 2)
    manager = harness.agents.heartbeats
    manager.record_heartbeat("a", "west")
    manager.record_heartbeat("b", "west")
    with pytest.raises(TooManyAgents):
        manager.record_heartbeat("c", "west")
    assert manager.record_heartbeat("a", "east") == "ok"


def test_heartbeat_without_a_cluster_keeps_the_known_one(harness: AgentsHarness) -> None:
    manager = harness.agents.heartbeats
    manager.record_heartbeat("a", None)
    assert manager.state["a"].cluster_id == ""
    manager.record_heartbeat("a", "west")
    manager.record_heartbeat("a", None)
    assert manager.state["a"].cluster_id == "west"


def test_concurrent_heartbeats_and_checks(harness: AgentsHarness) -> None:
    manager, stop = harness.agents.heartbeats, threading.Event()

    def work(name: str) -> None:
        turn = 0
        while not stop.is_set():
            manager.record_heartbeat(f"{name}{turn % 500}", "west")
            turn += 1

    threads = [threading.Thread(target=work, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for _ in range(20):
        manager.tick(harness.clock.now())
    stop.set()
    for thread in threads:
        thread.join()
    assert all(name[0] in "xyz" for name in manager.state)
