"""Who lives, by the gateway's own clock; who is evicted, once; what a restart remembers."""

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
from ductile.core.agents.heartbeat import Beat
from ductile.errors import LedgerFull
from ductile.store import agents
from tests.agents.house import House, Log
from tests.store.conftest import execute

SAID = "2001-01-01T00:00:00.000000Z"
"""By an agent's clock, which counts for nothing."""


def beat(house: House, *ids: str) -> None:
    """As the route does it: in memory, then in the ledger."""
    for id in ids:
        house.agents.heartbeats.record_heartbeat(id, "west")
    beats, now = [Beat(id, "west", SAID) for id in ids], house.clock.now()
    house.ledger.write(lambda tx: agents.record_heartbeats(tx, beats, now))


def check(house: House) -> float:
    return house.agents.heartbeats.tick(house.clock.now())


def test_heartbeat_is_recorded_in_the_state(house: House) -> None:
    manager = house.agents.heartbeats
    assert manager.record_heartbeat("agent-42", "cluster-west") == "ok"
    assert manager.state == {"agent-42": LastSeen(house.clock.now(), "cluster-west")}


def test_stopped_manager_refuses_heartbeats(house: House) -> None:
    down = HeartbeatManager(house.ledger, house.clock)
    with pytest.raises(HeartbeatManagerUnavailable):
        down.record_heartbeat("agent-42", "cluster-west")
    house.agents.heartbeats.stop()
    with pytest.raises(HeartbeatManagerUnavailable):
        house.agents.heartbeats.record_heartbeat("agent-42", "cluster-west")
    assert HeartbeatManagerUnavailable.http_status == 503


def test_agent_silent_for_91_seconds_is_evicted(house: House, log: Log) -> None:
    beat(house, "agent-99")
    house.agents.capabilities.register_agent("agent-99", {"agent_type": "x"})
    seen = to_text(house.clock.now())
    house.clock.advance(91)
    check(house)
    assert house.agents.heartbeats.state == {}
    assert house.agents.capabilities.get_agent("agent-99") is None
    (line,) = log.lines()
    assert (line["level"], line["message"]) == ("info", "agent evicted")
    assert (line["agent_id"], line["last_seen"]) == ("agent-99", seen)
    assert house.told("gateway:capabilities")[-1] == (
        "agent.removed",
        {"agent_id": "agent-99", "cluster_id": "west", "reason": "evicted", "last_seen": seen},
    )


def test_agent_silent_for_90_seconds_is_not_evicted(house: House, log: Log) -> None:
    beat(house, "agent-99")
    house.clock.advance(90)
    check(house)
    assert "agent-99" in house.agents.heartbeats.state
    assert log.lines() == []


def test_eviction_follows_the_constants(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (EVICTION_THRESHOLD_SECONDS, CHECK_INTERVAL_MS) == (90, 30_000)
    monkeypatch.setattr(heartbeats, "EVICTION_THRESHOLD_SECONDS", 10)
    monkeypatch.setattr(heartbeats, "CHECK_INTERVAL_MS", 7_000)
    beat(house, "a")
    house.clock.advance(11)
    assert check(house) == 7.0
    assert house.agents.heartbeats.state == {}
    assert house.rows()["a"]["received_at"] is None


def test_evicted_agent_keeps_its_row(house: House) -> None:
    beat(house, "a")
    house.clock.advance(91)
    check(house)
    assert house.rows()["a"]["last_seen_at"] == SAID


def test_eviction_uses_the_gateways_clock(house: House) -> None:
    """The column keeps what the agent said, which may be anything."""
    beat(house, "a")
    check(house)
    row = house.rows()["a"]
    assert (row["last_seen_at"], row["received_at"]) == (SAID, to_text(house.clock.now()))
    assert "a" in house.agents.heartbeats.state


def test_state_is_rebuilt_from_received_at(house: House) -> None:
    beat(house, "dead")
    house.clock.advance(60)
    beat(house, "alive")
    received = house.clock.now()
    house.clock.advance(40)
    house.start()
    assert house.agents.heartbeats.state == {"alive": LastSeen(received, "west")}


def test_unparsable_time_does_not_prevent_a_start(house: House) -> None:
    beat(house, "a", "b")
    text = to_text(house.clock.now())[:-1] + "?"
    execute(
        house.ledger,
        f"UPDATE gateway_heartbeats SET received_at = '{text}' WHERE agent_id = 'a'",
    )
    house.start()
    assert house.agents.heartbeats.state.keys() == {"b"}


def test_agent_silent_during_downtime_is_evicted_at_the_next_start(house: House, log: Log) -> None:
    beat(house, "dead")
    house.clock.advance(3600)
    house.start()
    check(house)
    assert [line["agent_id"] for line in log.lines()] == ["dead"]
    house.start()
    check(house)
    assert log.lines() == []


def test_evicted_agent_may_return(house: House, log: Log) -> None:
    beat(house, "a")
    house.clock.advance(91)
    check(house)
    beat(house, "a")
    assert "a" in house.agents.heartbeats.state
    check(house)
    assert len(log.lines()) == 1
    house.clock.advance(91)
    check(house)
    assert len(log.lines()) == 1


def test_agent_of_another_node_is_not_evicted(house: House, log: Log) -> None:
    beat(house, "a")
    other = House(house.ledger, house.clock)
    house.clock.advance(60)
    beat(other, "a")
    house.clock.advance(60)
    check(house)
    check(other)
    assert log.lines() == []
    house.clock.advance(60)
    check(house)
    check(other)
    assert [line["message"] for line in log.lines()] == ["agent evicted"]


def test_agent_stays_alive_while_the_ledger_is_unavailable(house: House, log: Log) -> None:
    beat(house, "a")
    house.clock.advance(91)
    house.agents.heartbeats.record_heartbeat("a", "west")
    check(house)
    assert "a" in house.agents.heartbeats.state
    assert log.lines() == []


def test_clock_set_back_does_not_keep_agents_alive(house: House, log: Log) -> None:
    beat(house, "a")
    house.clock.moment -= timedelta(days=1)
    check(house)
    assert house.agents.heartbeats.state == {}
    assert [line["agent_id"] for line in log.lines()] == ["a"]


def test_many_agents_are_evicted_in_batches(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "BATCH", 10)
    beat(house, *(f"a{number:03}" for number in range(35)))
    house.clock.advance(91)
    check(house)
    assert len(house.told("gateway:capabilities")) == 35


def test_failed_eviction_is_repeated_at_the_next_check(
    house: House, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(house, "a")
    house.clock.advance(91)

    def full(_work: object) -> None:
        raise LedgerFull("no space")

    with monkeypatch.context() as patch:
        patch.setattr(house.ledger, "write", full)
        with pytest.raises(LedgerFull):
            check(house)
    assert log.lines() == []
    check(house)
    assert len(log.lines()) == 1


def test_number_of_agents_is_limited(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "MAX_AGENTS", 2)
    manager = house.agents.heartbeats
    manager.record_heartbeat("a", "west")
    manager.record_heartbeat("b", "west")
    with pytest.raises(TooManyAgents):
        manager.record_heartbeat("c", "west")
    assert manager.record_heartbeat("a", "east") == "ok"


def test_heartbeat_without_a_cluster_keeps_the_known_one(house: House) -> None:
    manager = house.agents.heartbeats
    manager.record_heartbeat("a", None)
    assert manager.state["a"].cluster_id == ""
    manager.record_heartbeat("a", "west")
    manager.record_heartbeat("a", None)
    assert manager.state["a"].cluster_id == "west"


def test_concurrent_heartbeats_and_checks(house: House) -> None:
    manager, stop = house.agents.heartbeats, threading.Event()

    def work(name: str) -> None:
        turn = 0
        while not stop.is_set():
            manager.record_heartbeat(f"{name}{turn % 500}", "west")
            turn += 1

    threads = [threading.Thread(target=work, args=(name,)) for name in "xyz"]
    for thread in threads:
        thread.start()
    for _ in range(20):
        manager.tick(house.clock.now())
    stop.set()
    for thread in threads:
        thread.join()
    assert all(name[0] in "xyz" for name in manager.state)
