"""Decision logs of agents: validation, and the reminder that a log may request."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile._fast_dataclass import dataclass
from ductile.clock import moment_of
from ductile.core.agents.heartbeat import LONGEST_ID, is_id, is_text
from ductile.core.jobs.limits import DEEPEST, too_deep
from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.core.values.json_values import Failure
from ductile.model import Json

STATUSES = ("success", "failure", "pending", "skipped")
MOST_CAPABILITIES = 100
REMIND = "schedule_reminder"


@dataclass(frozen=True, slots=True)
class FieldRule:
    """What the value of a field must be."""

    holds: Callable[[Json], bool]
    must_be: str
    """Completes the error message "<field> must be ..."."""
    required: bool = False


def _is_capabilities(value: Json) -> bool:
    return isinstance(value, list) and len(value) <= MOST_CAPABILITIES and all(map(is_id, value))


_NAME = FieldRule(is_id, f"a string of 1 to {LONGEST_ID} printable characters")
_NEEDED_NAME = FieldRule(_NAME.holds, _NAME.must_be, required=True)
_TEXT = FieldRule(lambda value: isinstance(value, str), "a string")
_FLAG = FieldRule(lambda value: isinstance(value, bool), "true or false")

SECTIONS: Mapping[str, Mapping[str, FieldRule]] = {
    "meta": {
        "trace_id": _NEEDED_NAME,
        "timestamp": FieldRule(
            lambda value: moment_of(value) is not None, "a time (ISO 8601)", required=True
        ),
        "parent_step_id": _NAME,
        "cluster_id": _NAME,
    },
    "identity": {
        "agent_id": _NEEDED_NAME,
        "agent_type": _NEEDED_NAME,
        "capability_version": _NEEDED_NAME,
        "capabilities": FieldRule(_is_capabilities, f"a list of at most {MOST_CAPABILITIES} names"),
    },
    "cognition": {"intent": FieldRule(is_text, "a string that is not empty", required=True)},
    "action": {
        "status": FieldRule(
            lambda value: value in STATUSES, f"one of {', '.join(STATUSES)}", required=True
        ),
        "tool_call": _TEXT,
        "tool_output_summary": _TEXT,
    },
    "state_delta": {},
    "control": {"hitl_required": _FLAG, "interrupt_signal": _TEXT, "is_terminal": _FLAG},
}
REQUIRED = ("meta", "identity", "action")
"""The other sections may be absent or null. Fields without a rule may be anything."""


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """A valid log: the fields that the gateway uses, and the whole document."""

    trace_id: str
    timestamp: datetime
    agent_id: str
    cluster_id: str | None
    capabilities: Mapping[str, Json]
    """Type, version and capabilities of the agent."""
    tool_call: str | None
    tool_input: Json
    document: Json


@dataclass(frozen=True, slots=True)
class ReminderRequest:
    """The input of the tool call `schedule_reminder`."""

    delay_ms: Json
    """Not validated yet."""
    payload: Json


def parse_log(document: Json, text: bytes) -> DecisionLog | Failure:
    """The log, or the first problem; the message quotes nothing of the document.

    `text` is the JSON text of the document.
    """
    if too_deep(document, text):
        return Failure(f"a decision log must not be nested more than {DEEPEST} levels deep")
    if has_integer_altered_by_parsing(text):
        return Failure(
            "a decision log must not contain an integer beyond 64 bits; send it as a string"
        )
    if not isinstance(document, dict):
        return Failure("a decision log must be an object")
    for name in SECTIONS:
        problem = _find_problem(name, document.get(name))
        if problem is not None:
            return Failure(problem)
    meta, identity, action = (document[name] for name in REQUIRED)
    timestamp = moment_of(meta["timestamp"])
    assert timestamp is not None
    return DecisionLog(
        trace_id=meta["trace_id"],
        timestamp=timestamp,
        agent_id=identity["agent_id"],
        cluster_id=meta.get("cluster_id"),
        capabilities=_select_capabilities(identity),
        tool_call=action.get("tool_call"),
        tool_input=action.get("tool_input"),
        document=document,
    )


def _find_problem(name: str, section: Json) -> str | None:
    if section is None:
        return f"{name} is required" if name in REQUIRED else None
    if not isinstance(section, dict):
        return f"{name} must be an object"
    for field, rule in SECTIONS[name].items():
        value = section.get(field)
        if value is None:
            if rule.required:
                return f"{name}.{field} is required"
        elif not rule.holds(value):
            return f"{name}.{field} must be {rule.must_be}"
    return None


def _select_capabilities(identity: Mapping[str, Any]) -> dict[str, Json]:
    names = ("agent_type", "capability_version", "capabilities")
    return {name: identity[name] for name in names if identity.get(name) is not None}


def find_reminder_request(log: DecisionLog) -> ReminderRequest | None:
    """The reminder that the log requests; None if its tool call is another one."""
    if log.tool_call != REMIND:
        return None
    given = _parse_object(log.tool_input)
    payload = given.get("payload")
    return ReminderRequest(given.get("delay_ms"), {} if payload is None else payload)


def _parse_object(value: Json) -> Mapping[str, Json]:
    """The object, or the object in a JSON string; else an empty one."""
    if not isinstance(value, str):
        return value if isinstance(value, dict) else {}
    raw = value.encode()
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    # A string is not a valid payload, so the scheduler refuses what cannot be stored unchanged.
    unchanged = not (too_deep(parsed, raw) or has_integer_altered_by_parsing(raw))
    return parsed if unchanged else {**parsed, "payload": value}
