"""Decision logs: validation, and the requests of `schedule_reminder`."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import orjson
import pytest

from ductile.core.agents import decision_log
from ductile.core.agents.decision_log import (
    SECTIONS,
    DecisionLog,
    ReminderRequest,
    find_reminder_request,
)
from ductile.core.jobs.limits import DEEPEST
from ductile.core.values.json_values import Failure

LOG: dict[str, Any] = {
    "meta": {
        "trace_id": "t-1",
        "timestamp": "2026-02-22T12:00:00Z",
        "parent_step_id": "s-0",
        "cluster_id": "west",
    },
    "identity": {
        "agent_id": "agent-7",
        "agent_type": "planner",
        "capability_version": "1.2",
        "capabilities": ["search"],
    },
    "cognition": {"intent": "look", "confidence": 0.5},
    "action": {
        "status": "success",
        "tool_call": "grep",
        "tool_input": "x",
        "tool_output_summary": "nothing",
    },
    "state_delta": {"added": []},
    "control": {"hitl_required": False, "interrupt_signal": None, "is_terminal": True},
}
LEAST: dict[str, Any] = {
    "meta": {"trace_id": "t-1", "timestamp": "2026-02-22T12:00:00Z"},
    "identity": {"agent_id": "a", "agent_type": "planner", "capability_version": "1"},
    "action": {"status": "pending"},
}


def changed(path: str, value: Any) -> dict[str, Any]:
    section, _, field = path.partition(".")
    log = deepcopy(LOG)
    if field:
        log[section][field] = value
    else:
        log[section] = value
    return log


def without(path: str) -> dict[str, Any]:
    section, _, field = path.partition(".")
    log = deepcopy(LOG)
    del (log[section] if field else log)[field or section]
    return log


def read(document: Any) -> DecisionLog | Failure:
    return decision_log.parse_log(document, json.dumps(document).encode())


def detail(document: Any) -> str:
    found = read(document)
    assert isinstance(found, Failure)
    return found.reason


def test_complete_and_minimal_log() -> None:
    found = read(LOG)
    assert isinstance(found, DecisionLog)
    assert (found.trace_id, found.agent_id, found.cluster_id) == ("t-1", "agent-7", "west")
    assert found.capabilities == {
        "agent_type": "planner",
        "capability_version": "1.2",
        "capabilities": ["search"],
    }
    assert found.document is LOG
    least = read(LEAST)
    assert isinstance(least, DecisionLog)
    assert (least.cluster_id, least.tool_call) == (None, None)


REQUIRED = [
    "meta",
    "meta.trace_id",
    "meta.timestamp",
    "identity",
    "identity.agent_id",
    "identity.agent_type",
    "identity.capability_version",
    "cognition.intent",
    "action",
    "action.status",
]


@pytest.mark.parametrize("path", REQUIRED)
def test_required_fields(path: str) -> None:
    assert detail(without(path)) == f"{path} is required"
    assert detail(changed(path, None)) == f"{path} is required"


@pytest.mark.parametrize("path", ["cognition", "state_delta", "control"])
def test_optional_fields_may_be_absent_or_null(path: str) -> None:
    assert isinstance(read(without(path)), DecisionLog)
    assert isinstance(read(changed(path, None)), DecisionLog)


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("value", [[], "x", 1, True])
def test_section_must_be_an_object(section: str, value: Any) -> None:
    assert detail(changed(section, value)) == f"{section} must be an object"


@pytest.mark.parametrize("status", ["success", "failure", "pending", "skipped"])
def test_valid_statuses(status: str) -> None:
    assert isinstance(read(changed("action.status", status)), DecisionLog)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("action.status", "done"),
        ("action.status", ["success"]),
        ("action.tool_call", 1),
        ("meta.trace_id", ""),
        ("meta.trace_id", 7),
        ("meta.timestamp", "yesterday"),
        ("meta.timestamp", 1740000000),
        ("meta.cluster_id", "a\nb"),
        ("identity.agent_id", " "),
        ("identity.agent_id", "x" * 201),
        ("identity.agent_type", {}),
        ("identity.capability_version", 2),
        ("identity.capabilities", "search"),
        ("identity.capabilities", [1]),
        ("identity.capabilities", ["x"] * 101),
        ("cognition.intent", ""),
        ("cognition.intent", {}),
        ("control.hitl_required", "yes"),
        ("control.is_terminal", 1),
        ("control.interrupt_signal", True),
    ],
)
def test_invalid_field_values(path: str, value: Any) -> None:
    assert detail(changed(path, value)).startswith(f"{path} must be ")


@pytest.mark.parametrize("document", [None, [], "x", 1, True])
def test_log_must_be_an_object(document: Any) -> None:
    assert detail(document) == "a decision log must be an object"


def test_unknown_fields_are_accepted() -> None:
    assert isinstance(read({**LOG, "extra": {"a": 1}}), DecisionLog)
    assert isinstance(read(changed("cognition.reasoning", ["why"])), DecisionLog)


@pytest.mark.parametrize(
    ("number", "good"), [("18446744073709551615", True), ("18446744073709551616", False)]
)
def test_integer_beyond_64_bits_is_refused(number: str, good: bool) -> None:
    text = json.dumps(changed("state_delta.n", "#")).replace('"#"', number).encode()
    found = decision_log.parse_log(orjson.loads(text), text)
    assert isinstance(found, DecisionLog) is good
    assert good or "beyond 64 bits" in getattr(found, "reason", "")


def test_too_deep_log_is_refused() -> None:
    deep: Any = []
    for _ in range(DEEPEST):
        deep = [deep]
    assert "nested more than 100 levels deep" in detail({**LOG, "extra": deep})


def test_error_contains_nothing_of_the_document() -> None:
    canary = "canary-0123456789"
    for path in REQUIRED:
        assert canary not in detail(changed(path, [canary]))


def asked(tool_input: Any, tool_call: str = "schedule_reminder") -> ReminderRequest | None:
    log = deepcopy(LOG)
    log["action"] |= {"tool_call": tool_call, "tool_input": tool_input}
    found = read(log)
    assert isinstance(found, DecisionLog)
    return find_reminder_request(found)


def test_tool_input_is_an_object_or_a_json_string() -> None:
    wanted = {"delay_ms": 60_000, "payload": {"task": "check_quota"}}
    expected = ReminderRequest(60_000, {"task": "check_quota"})
    assert asked(wanted) == expected
    assert asked(json.dumps(wanted)) == expected


@pytest.mark.parametrize("tool_input", [None, [], 5, True, "", "not json", "[]", "5", "null", {}])
def test_other_tool_input_has_no_delay(tool_input: Any) -> None:
    assert asked(tool_input) == ReminderRequest(None, {})


@pytest.mark.parametrize("value", ["123456789012345678901234567890", "[" * 1000 + "]" * 1000])
def test_payload_that_reading_would_change_is_invalid(value: str) -> None:
    text = f'{{"delay_ms": 60000, "payload": {{"a": {value}}}}}'
    assert asked(text) == ReminderRequest(60_000, text)


def test_other_tools_request_no_reminder() -> None:
    assert asked({"delay_ms": 1, "payload": {}}, tool_call="grep") is None
