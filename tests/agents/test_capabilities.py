"""The capability map: one for all nodes, every change told once."""

from __future__ import annotations

import pytest

from ductile.store import agents
from tests.agents.house import House

TOPIC = "gateway:capabilities"


def test_register_find_list_and_remove(house: House) -> None:
    capabilities = house.agents.capabilities
    assert capabilities.get_agent("a") is None
    assert capabilities.register_agent("a", {"agent_type": "planner"})
    found = capabilities.get_agent("a")
    assert found is not None
    assert found["capabilities"] == {"agent_type": "planner"}
    assert [row["agent_id"] for row in capabilities.list_agents()] == ["a"]
    assert capabilities.remove_agent("a")
    assert capabilities.get_agent("a") is None
    assert capabilities.list_agents() == []
    assert not capabilities.remove_agent("a")
    assert not capabilities.remove_agent("nobody")


def test_each_change_is_published(house: House) -> None:
    capabilities = house.agents.capabilities
    capabilities.register_agent("a", {"v": "1"})
    capabilities.register_agent("a", {"v": "1"})
    capabilities.register_agent("a", {"v": "2"})
    capabilities.remove_agent("a")
    assert house.told(TOPIC) == [
        ("agent.registered", {"agent_id": "a", "capabilities": {"v": "1"}}),
        ("agent.registered", {"agent_id": "a", "capabilities": {"v": "2"}}),
        ("agent.removed", {"agent_id": "a", "reason": "removed"}),
    ]


def test_restart_and_other_nodes_see_the_same_agents(house: House) -> None:
    house.agents.capabilities.register_agent("a", {"v": "1"})
    house.start()
    assert house.agents.capabilities.get_agent("a") is not None
    assert House(house.ledger, house.clock).agents.capabilities.list_agents()[0]["agent_id"] == "a"


def test_agent_with_only_heartbeats_is_not_listed(house: House) -> None:
    now = house.clock.now()
    house.ledger.write(lambda tx: agents.record_contact(tx, "a", "west", now, now))
    assert house.agents.capabilities.get_agent("a") is None
    assert house.agents.capabilities.list_agents() == []


def test_list_is_complete_across_pages(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agents, "BATCH", 3)
    for number in range(7):
        house.agents.capabilities.register_agent(f"a{number}", {})
    assert len(house.agents.capabilities.list_agents()) == 7


def test_silent_registered_agent_is_evicted(house: House) -> None:
    house.agents.capabilities.register_agent("a", {"v": "1"})
    house.clock.advance(91)
    house.agents.heartbeats.tick(house.clock.now())
    assert house.agents.capabilities.list_agents() == []
