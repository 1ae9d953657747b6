"""A decision log: what an agent thought and did, checked before anybody hears of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import orjson

from ductile.clock import moment_of
from ductile.core.agents.heartbeat import LONGEST_ID, is_id, is_text
from ductile.core.jobs.limits import DEEPEST, too_deep
from ductile.core.values.json_integers import has_integer_altered_by_parsing
from ductile.core.values.json_values import Failure
from ductile.model import Json
from ductile.record import dataclass

STATUSES = ("success", "failure", "pending", "skipped")
MOST_CAPABILITIES = 100
REMIND = "schedule_reminder"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field must be, in words for whoever sent something else."""

    holds: Callable[[Json], bool]
    must_be: str
    required: bool = False


def _is_capabilities(value: Json) -> bool:
    return isinstance(value, list) and len(value) <= MOST_CAPABILITIES and all(map(is_id, value))


_NAME = Rule(is_id, f"a text of 1 to {LONGEST_ID} printable characters")
_NEEDED_NAME = Rule(_NAME.holds, _NAME.must_be, required=True)
_TEXT = Rule(lambda value: isinstance(value, str), "a text")
_FLAG = Rule(lambda value: isinstance(value, bool), "true or false")

SECTIONS: Mapping[str, Mapping[str, Rule]] = {
    "meta": {
        "trace_id": _NEEDED_NAME,
        "timestamp": Rule(
            lambda value: moment_of(value) is not None, "a time (ISO 8601)", required=True
        ),
        "parent_step_id": _NAME,
        "cluster_id": _NAME,
    },
    "identity": {
        "agent_id": _NEEDED_NAME,
        "agent_type": _NEEDED_NAME,
        "capability_version": _NEEDED_NAME,
        "capabilities": Rule(_is_capabilities, f"a list of at most {MOST_CAPABILITIES} names"),
    },
    "cognition": {"intent": Rule(is_text, "a text that is not empty", required=True)},
    "action": {
        "status": Rule(
            lambda value: value in STATUSES, f"one of {', '.join(STATUSES)}", required=True
        ),
        "tool_call": _TEXT,
        "tool_output_summary": _TEXT,
    },
    "state_delta": {},
    "control": {"hitl_required": _FLAG, "interrupt_signal": _TEXT, "is_terminal": _FLAG},
}
REQUIRED = ("meta", "identity", "action")
"""The others may be absent or null. What no rule speaks of may be anything."""


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """A log that keeps the rules: what the gateway itself reads of it, and the whole."""

    trace_id: str
    timestamp: datetime
    agent_id: str
    cluster_id: str | None
    capabilities: Mapping[str, Json]
    """What the agent says that it is."""
    tool_call: str | None
    tool_input: Json
    document: Json


@dataclass(frozen=True, slots=True)
class Reminder:
    """What `schedule_reminder` asks for."""

    delay_ms: Json
    """As it was given: whoever schedules it judges it."""
    payload: Json


def read(document: Json, text: bytes) -> DecisionLog | Failure:
    """The log, or what is wrong with it: in our own words, never in the document's.

    `text` is what the document was read from.
    """
    if too_deep(document, text):
        return Failure(f"a decision log must not be nested more than {DEEPEST} levels deep")
    if has_integer_altered_by_parsing(text):
        return Failure("a decision log must not hold an integer beyond 64 bits; send it as text")
    if not isinstance(document, dict):
        return Failure("a decision log must be an object")
    for name in SECTIONS:
        wrong = _problem(name, document.get(name))
        if wrong is not None:
            return Failure(wrong)
    meta, identity, action = (document[name] for name in REQUIRED)
    said = moment_of(meta["timestamp"])
    assert said is not None
    return DecisionLog(
        trace_id=meta["trace_id"],
        timestamp=said,
        agent_id=identity["agent_id"],
        cluster_id=meta.get("cluster_id"),
        capabilities=_capabilities(identity),
        tool_call=action.get("tool_call"),
        tool_input=action.get("tool_input"),
        document=document,
    )


def _problem(name: str, section: Json) -> str | None:
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


def _capabilities(identity: Mapping[str, Any]) -> dict[str, Json]:
    names = ("agent_type", "capability_version", "capabilities")
    return {name: identity[name] for name in names if identity.get(name) is not None}


def reminder_of(log: DecisionLog) -> Reminder | None:
    """What the log asks to be reminded of, if that is what its tool call is."""
    if log.tool_call != REMIND:
        return None
    asked = _object(log.tool_input)
    payload = asked.get("payload")
    return Reminder(asked.get("delay_ms"), {} if payload is None else payload)


def _object(value: Json) -> Mapping[str, Json]:
    """An object, or the one that a text holds; else an empty one."""
    if not isinstance(value, str):
        return value if isinstance(value, dict) else {}
    raw = value.encode()
    try:
        held = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(held, dict):
        return {}
    # A text is no payload: who schedules it refuses it, where it cannot be kept as it is.
    kept = not (too_deep(held, raw) or has_integer_altered_by_parsing(raw))
    return held if kept else {**held, "payload": value}
