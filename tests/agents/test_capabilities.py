"""The capability registry: shared by all nodes, every change published once."""

from __future__ import annotations

import pytest

from ductile.store import agents
from tests.agents.harness import AgentsHarness

TOPIC = "gateway:capabilities"


def test_register_find_list_and_remove(harness: AgentsHarness) -> None:
    capabilities = harness.agents.capabilities
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


def test_each_change_is_published(harness: AgentsHarness) -> None:
    capabilities = harness.agents.capabilities
    capabilities.register_agent("a", {"v": "1"})
    capabilities.register_agent("a", {"v": "1"})
    capabilities.register_agent("a", {"v": "2"})
    capabilities.remove_agent("a")
    assert harness.read_notices(TOPIC) == [
        ("agent.registered", {"agent_id": "a", "capabilities": {"v": "1"}}),
        ("agent.registered", {"agent_id": "a", "capabilities": {"v": "2"}}),
        ("agent.removed", {"agent_id": "a", "reason": "removed"}),
    ]


def test_restart_and_other_nodes_see_the_same_agents(harness: AgentsHarness) -> None:
    harness.agents.capabilities.register_agent("a", {"v": "1"})
    harness.start()
    assert harness.agents.capabilities.get_agent("a") is not None
    assert (
        AgentsHarness(harness.ledger, harness.clock).agents.capabilities.list_agents()[0][
            "agent_id"
        ]
        == "a"
    )


def test_agent_with_only_heartbeats_is_not_listed(harness: AgentsHarness) -> None:
    now = harness.clock.now()
    harness.ledger.write(lambda tx: agents.record_contact(tx, "a", "west", now, now))
    assert harness.agents.capabilities.get_agent("a") is None
    assert harness.agents.capabilities.list_agents() == []


def test_list_is_complete_across_pages(
    harness: AgentsHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agents, "BATCH", 3)
    for number in range(7):
        harness.agents.capabilities.register_agent(f"a{number}", {})
    assert len(harness.agents.capabilities.list_agents()) == 7


def test_silent_registered_agent_is_evicted(harness: AgentsHarness) -> None:
    harness.agents.capabilities.register_agent("a", {"v": "1"})
    harness.clock.advance(91)
    harness.agents.heartbeats.tick(harness.clock.now())
    assert harness.agents.capabilities.list_agents() == []
