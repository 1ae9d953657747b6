#!/usr/bin/env python3
"""Sends an event on under another name: the first rule that matches says which.

Conditions mean what the gateway's own `if` means by them, without `regex`.
"""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import Answer, Misconfigured, Request, serve
from template import MISSING, ROOTS, find, scope_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_RULES = 100
MAX_DEPTH = 3
ADDED = ("ductile_plugin", "ductile_pipeline", "ductile_step_id")
"""What the gateway adds to a payload for this job alone."""
ORDERING: dict[str, Callable[[Any, Any], bool]] = {
    "gt": lambda found, value: found > value,
    "gte": lambda found, value: found >= value,
    "lt": lambda found, value: found < value,
    "lte": lambda found, value: found <= value,
}
TEXTUAL: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda found, value: value in found,
    "startswith": lambda found, value: found.startswith(value),
    "endswith": lambda found, value: found.endswith(value),
}
OPERATORS = ("exists", "eq", "neq", "in", *ORDERING, *TEXTUAL)


def handle(request: Request) -> Answer:
    rules, otherwise = rules_of(request.config)
    scope = scope_of(request)
    for number, (condition, emit) in enumerate(rules, 1):
        if holds(condition, scope):
            return passed_on(request, emit, {"rule": number, "event": emit})
    if otherwise is None:
        return Answer({"rule": None, "event": None})
    return passed_on(request, otherwise, {"rule": "else", "event": otherwise})


def passed_on(request: Request, type: str, result: dict[str, Any]) -> Answer:
    payload = request.payload
    if isinstance(payload, dict):
        payload = {key: value for key, value in payload.items() if key not in ADDED}
    answer = Answer(result)
    answer.emit(type, payload, key=request.event.get("dedupe_key"))
    return answer


def health(request: Request) -> Answer:
    rules, _ = rules_of(request.config)
    return Answer(f"{len(rules)} rules")


def rules_of(config: Mapping[str, Any]) -> tuple[list[tuple[dict[str, Any], str]], str | None]:
    """The rules and what else is emitted, all of them checked: a bad rule fails every event."""
    rules, otherwise = config.get("rules"), config.get("else")
    if not isinstance(rules, list) or not 0 < len(rules) <= MAX_RULES:
        raise Misconfigured(f"rules must be a list of 1 to {MAX_RULES} rules")
    if otherwise is not None and not _is_text(otherwise):
        raise Misconfigured("else must be an event type")
    checked = []
    for number, rule in enumerate(rules, 1):
        if not isinstance(rule, dict) or set(rule) != {"when", "emit"}:
            raise Misconfigured(f"rule {number} must have `when` and `emit`")
        if not _is_text(rule["emit"]):
            raise Misconfigured(f"rule {number}: emit must be an event type")
        check(rule["when"], f"rule {number}", 1)
        checked.append((rule["when"], rule["emit"]))
    return checked, otherwise


def check(condition: Any, where: str, depth: int) -> None:
    """Refuse a condition that `holds` could not judge."""
    if depth > MAX_DEPTH:
        raise Misconfigured(f"{where}: nested deeper than {MAX_DEPTH} levels")
    if not isinstance(condition, dict):
        raise Misconfigured(f"{where}: a condition must be a mapping")
    keys = set(condition)
    if keys == {"not"}:
        check(condition["not"], where, depth + 1)
    elif keys in ({"all"}, {"any"}):
        [parts] = condition.values()
        if not isinstance(parts, list) or not parts:
            raise Misconfigured(f"{where}: all and any need a list of conditions")
        for part in parts:
            check(part, where, depth + 1)
    elif {"path", "op"} <= keys <= {"path", "op", "value"}:
        _check_comparison(condition, where)
    else:
        raise Misconfigured(f"{where}: a condition is path, op and value, or all, any or not")


def _check_comparison(condition: Mapping[str, Any], where: str) -> None:
    path, op, value = condition["path"], condition["op"], condition.get("value")
    if not _is_text(path) or path.split(".")[0] not in ROOTS or "" in path.split("."):
        raise Misconfigured(f"{where}: a path begins with payload, event or context")
    if op not in OPERATORS:
        raise Misconfigured(f"{where}: op must be one of {', '.join(OPERATORS)}")
    if op == "exists":
        if value not in (None, True, False):
            raise Misconfigured(f"{where}: exists takes no value but true or false")
    elif "value" not in condition:
        raise Misconfigured(f"{where}: {op} needs a value")
    elif op == "in" and not isinstance(value, list):
        raise Misconfigured(f"{where}: in needs a list")
    elif op in ORDERING and not _is_number(value):
        raise Misconfigured(f"{where}: {op} compares numbers")
    elif op in TEXTUAL and not isinstance(value, str):
        raise Misconfigured(f"{where}: {op} compares text")


def holds(condition: Mapping[str, Any], scope: Mapping[str, Any]) -> bool:
    """Judge a checked condition. A value of the wrong type makes a comparison false."""
    if "not" in condition:
        return not holds(condition["not"], scope)
    if "all" in condition:
        return all(holds(part, scope) for part in condition["all"])
    if "any" in condition:
        return any(holds(part, scope) for part in condition["any"])
    value: Any = condition.get("value")
    found, op = find(scope, condition["path"]), condition["op"]
    if op == "exists":
        return (found is not MISSING) is (value is not False)
    if found is MISSING:
        found = None
    if op in ("eq", "neq"):
        return same(found, value) is (op == "eq")
    if op == "in":
        return any(same(found, item) for item in value)
    if op in ORDERING:
        return _is_number(found) and ORDERING[op](found, value)
    return isinstance(found, str) and TEXTUAL[op](found.casefold(), value.casefold())


def same(one: Any, other: Any) -> bool:
    """Equality as JSON means it: 1 is 1.0, but true is not 1 and "1" is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


if __name__ == "__main__":
    serve({"handle": handle, "health": health})
