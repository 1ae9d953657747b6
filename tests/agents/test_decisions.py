"""Decision logs: accepted as a whole or reported by their hash; the reminders that they request."""

from __future__ import annotations

import hashlib
from copy import deepcopy
from typing import Any

import orjson
import pytest

from ductile.agents.decisions import AcceptedLog
from ductile.agents.heartbeats import HeartbeatManagerUnavailable
from ductile.clock import to_text
from ductile.core.agents import decision_log
from ductile.core.agents.decision_log import DecisionLog
from ductile.core.values.json_values import Failure
from ductile.store import reminders
from tests.agents.harness import AgentsHarness, LogCapture
from tests.core.agents.test_decision_log import LEAST, LOG

MESSAGES, VIOLATIONS = "gateway:messages", "gateway:violations"


def accept(harness: AgentsHarness, document: Any) -> AcceptedLog:
    log = decision_log.parse_log(document, orjson.dumps(document))
    assert isinstance(log, DecisionLog), log
    outcome = harness.ledger.write(harness.agents.decisions.build_acceptance(log))
    harness.agents.decisions.finish_acceptance(outcome)
    return outcome


def request_reminder(tool_input: Any) -> dict[str, Any]:
    document = deepcopy(LOG)
    document["action"] |= {"tool_call": "schedule_reminder", "tool_input": tool_input}
    return document


def test_accepted_log_is_published_unchanged(harness: AgentsHarness) -> None:
    accept(harness, LOG)
    assert harness.read_notices(MESSAGES) == [("decision_log", LOG)]


def test_accepted_log_counts_as_a_heartbeat(harness: AgentsHarness) -> None:
    accept(harness, LOG)
    assert harness.agents.heartbeats.state["agent-7"].cluster_id == "west"
    row = harness.rows()["agent-7"]
    assert row["received_at"] == to_text(harness.clock.now())
    assert row["last_seen_at"] == "2026-02-22T12:00:00.000000Z"
    harness.clock.advance(60)
    accept(harness, LOG)
    harness.clock.advance(60)
    harness.agents.heartbeats.tick(harness.clock.now())
    assert "agent-7" in harness.agents.heartbeats.state


def test_accepted_log_registers_the_agent_durably(harness: AgentsHarness) -> None:
    accept(harness, LOG)
    accept(harness, LOG)
    harness.start()
    found = harness.agents.capabilities.get_agent("agent-7")
    assert found is not None
    assert found["capabilities"] == {
        "agent_type": "planner",
        "capability_version": "1.2",
        "capabilities": ["search"],
    }
    assert [type for type, _ in harness.read_notices("gateway:capabilities")] == [
        "agent.registered"
    ]


def test_log_without_a_cluster_keeps_the_known_one(harness: AgentsHarness) -> None:
    document = deepcopy(LEAST)
    document["identity"]["agent_id"] = "agent-7"
    accept(harness, LOG)
    accept(harness, document)
    assert harness.rows()["agent-7"]["cluster_id"] == "west"
    assert harness.agents.heartbeats.state["agent-7"].cluster_id == "west"


def test_reminder_of_a_log_is_stored(harness: AgentsHarness) -> None:
    document = request_reminder({"delay_ms": 60_000, "payload": {"task": "check_quota"}})
    accept(harness, document)
    assert harness.read_notices(MESSAGES) == [("decision_log", document)]
    assert harness.woken == 1
    harness.clock.advance(60)
    harness.agents.reminders.tick(harness.clock.now())
    assert harness.read_notices("agent:agent-7:scheduled") == [
        ("reminder", {"task": "check_quota"})
    ]


def test_invalid_delay_is_logged_and_the_log_accepted(
    harness: AgentsHarness, log: LogCapture
) -> None:
    document = request_reminder({"delay_ms": -500})
    accept(harness, document)
    (line,) = log.lines()
    assert line["level"] == "warn"
    assert line["message"] == "invalid delay_ms for schedule_reminder: -500"
    assert line["agent_id"] == "agent-7"
    assert harness.reminders() == []
    assert harness.read_notices(MESSAGES) == [("decision_log", document)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({}, "null"),
        ({"delay_ms": 0}, "0"),
        ({"delay_ms": True}, "true"),
        ({"delay_ms": "60000"}, '"60000"'),
        ({"delay_ms": 1.5}, "1.5"),
        ({"delay_ms": [1] * 99}, "[1,1,1"),
        ("not json", "null"),
        (None, "null"),
        ([], "null"),
    ],
)
def test_delay_must_be_a_positive_integer(
    harness: AgentsHarness, log: LogCapture, given: Any, shown: str
) -> None:
    accept(harness, request_reminder(given))
    (line,) = log.lines()
    assert line["message"].startswith(f"invalid delay_ms for schedule_reminder: {shown}")
    assert len(line["message"]) < 120
    assert harness.reminders() == []
    assert len(harness.read_notices(MESSAGES)) == 1


def test_tool_input_may_be_a_json_string(harness: AgentsHarness) -> None:
    accept(harness, request_reminder('{"delay_ms": 1000, "payload": {"a": 1}}'))
    assert harness.reminders()[0]["payload"] == {"a": 1}


def test_payload_is_optional(harness: AgentsHarness) -> None:
    accept(harness, request_reminder({"delay_ms": 1000}))
    assert harness.reminders()[0]["payload"] == {}


def test_payload_that_is_not_an_object_is_logged(harness: AgentsHarness, log: LogCapture) -> None:
    accept(harness, request_reminder({"delay_ms": 1000, "payload": "x"}))
    assert [line["message"] for line in log.lines()] == ["invalid payload for schedule_reminder"]
    assert harness.reminders() == []
    assert len(harness.read_notices(MESSAGES)) == 1


def test_too_many_reminders_are_logged_and_the_log_accepted(
    harness: AgentsHarness, log: LogCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reminders, "MAX_REMINDERS", 1)
    accept(harness, request_reminder({"delay_ms": 1000}))
    assert log.lines() == []
    accept(harness, request_reminder({"delay_ms": 1000}))
    assert [line["level"] for line in log.lines()] == ["warn"]
    assert len(harness.read_notices(MESSAGES)) == 2


def test_log_is_refused_while_the_heartbeat_manager_is_stopped(harness: AgentsHarness) -> None:
    harness.agents.heartbeats.stop()
    with pytest.raises(HeartbeatManagerUnavailable):
        accept(harness, request_reminder({"delay_ms": 1000}))
    assert (harness.rows(), harness.reminders(), harness.read_notices(MESSAGES)) == ({}, [], [])


def test_violation_contains_the_hash_but_not_the_content(harness: AgentsHarness) -> None:
    raw = b'{"meta": {"trace_id": "canary-0123456789"}}'
    why = Failure("meta.timestamp is required")
    harness.ledger.write(harness.agents.decisions.build_rejection(why, raw, "ci"))
    ((type, payload),) = harness.read_notices(VIOLATIONS)
    assert type == "schema_violation"
    assert payload == {
        "sha256": hashlib.sha256(raw).hexdigest(),
        "size": len(raw),
        "detail": "meta.timestamp is required",
        "sender": "ci",
    }
