#!/usr/bin/env python3
"""Emits an event under the type of the first rule that matches. See README.md.

Conditions have the semantics of `if` in pipelines, without `regex`.
"""

from __future__ import annotations

import sys

sys.path.insert(0, __file__.rpartition("/")[0] + "/../lib")
from protocol import ConfigError, Request, Response, serve
from template import MISSING, ROOTS, collect_values, find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MAX_RULES = 100
MAX_DEPTH = 3
ADDED = ("ductile_plugin", "ductile_pipeline", "ductile_step_id")
"""Keys that the gateway adds to the payload of this job."""
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


def handle(request: Request) -> Response:
    rules, otherwise = read_rules(request.config)
    scope = collect_values(request)
    for number, (condition, emit) in enumerate(rules, 1):
        if evaluate(condition, scope):
            return forward(request, emit, {"rule": number, "event": emit})
    if otherwise is None:
        return Response({"rule": None, "event": None})
    return forward(request, otherwise, {"rule": "else", "event": otherwise})


def forward(request: Request, type: str, result: dict[str, Any]) -> Response:
    payload = request.payload
    if isinstance(payload, dict):
        payload = {key: value for key, value in payload.items() if key not in ADDED}
    response = Response(result)
    response.emit(type, payload, key=request.event.get("dedupe_key"))
    return response


def health(request: Request) -> Response:
    rules, _ = read_rules(request.config)
    return Response(f"{len(rules)} rules")


def read_rules(config: Mapping[str, Any]) -> tuple[list[tuple[dict[str, Any], str]], str | None]:
    """The validated rules, and the event type if none matches."""
    rules, otherwise = config.get("rules"), config.get("else")
    if not isinstance(rules, list) or not 0 < len(rules) <= MAX_RULES:
        raise ConfigError(f"rules must be a list of 1 to {MAX_RULES} rules")
    if otherwise is not None and not _is_text(otherwise):
        raise ConfigError("else must be an event type")
    checked = []
    for number, rule in enumerate(rules, 1):
        if not isinstance(rule, dict) or set(rule) != {"when", "emit"}:
            raise ConfigError(f"rule {number} must have the keys when and emit")
        if not _is_text(rule["emit"]):
            raise ConfigError(f"rule {number}: emit must be an event type")
        check_condition(rule["when"], f"rule {number}", 1)
        checked.append((rule["when"], rule["emit"]))
    return checked, otherwise


def check_condition(condition: Any, where: str, depth: int) -> None:
    """Raise `ConfigError` if a condition is not valid."""
    if depth > MAX_DEPTH:
        raise ConfigError(f"{where}: conditions may be nested at most {MAX_DEPTH} levels deep")
    if not isinstance(condition, dict):
        raise ConfigError(f"{where}: a condition must be a mapping")
    keys = set(condition)
    if keys == {"not"}:
        check_condition(condition["not"], where, depth + 1)
    elif keys in ({"all"}, {"any"}):
        [parts] = condition.values()
        if not isinstance(parts, list) or not parts:
            raise ConfigError(f"{where}: all and any require a list of conditions")
        for part in parts:
            check_condition(part, where, depth + 1)
    elif {"path", "op"} <= keys <= {"path", "op", "value"}:
        _check_comparison(condition, where)
    else:
        raise ConfigError(
            f"{where}: a condition has path, op and value, or one of all, any and not"
        )


def _check_comparison(condition: Mapping[str, Any], where: str) -> None:
    path, op, value = condition["path"], condition["op"], condition.get("value")
    if not _is_text(path) or path.split(".")[0] not in ROOTS or "" in path.split("."):
        raise ConfigError(f"{where}: path must start with payload, event or context")
    if op not in OPERATORS:
        raise ConfigError(f"{where}: op must be one of {', '.join(OPERATORS)}")
    if op == "exists":
        if value not in (None, True, False):
            raise ConfigError(f"{where}: the value of exists must be true or false")
    elif "value" not in condition:
        raise ConfigError(f"{where}: {op} requires a value")
    elif op == "in" and not isinstance(value, list):
        raise ConfigError(f"{where}: the value of in must be a list")
    elif op in ORDERING and not _is_number(value):
        raise ConfigError(f"{where}: the value of {op} must be a number")
    elif op in TEXTUAL and not isinstance(value, str):
        raise ConfigError(f"{where}: the value of {op} must be text")


def evaluate(condition: Mapping[str, Any], scope: Mapping[str, Any]) -> bool:
    """Evaluate a valid condition. A comparison with a value of another type is false."""
    if "not" in condition:
        return not evaluate(condition["not"], scope)
    if "all" in condition:
        return all(evaluate(part, scope) for part in condition["all"])
    if "any" in condition:
        return any(evaluate(part, scope) for part in condition["any"])
    value: Any = condition.get("value")
    found, op = find(scope, condition["path"]), condition["op"]
    if op == "exists":
        return (found is not MISSING) is (value is not False)
    if found is MISSING:
        found = None
    if op in ("eq", "neq"):
        return are_equal(found, value) is (op == "eq")
    if op == "in":
        return any(are_equal(found, item) for item in value)
    if op in ORDERING:
        return _is_number(found) and ORDERING[op](found, value)
    return isinstance(found, str) and TEXTUAL[op](found.casefold(), value.casefold())


def are_equal(one: Any, other: Any) -> bool:
    """Whether two values are equal in JSON: 1 equals 1.0, but not true and not "1"."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(are_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(are_equal, one, other))
    return bool(one == other)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


if __name__ == "__main__":
    serve({"handle": handle, "health": health})
