"""A tool: its description for agents, the routes that it may call, and its function."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.values import scopes
from ductile.core.values.suggest import nearest
from ductile.errors import DuctileError, UsageError
from ductile.http.mcp.results import Json
from ductile.http.mcp.route_caller import RouteCaller, RouteError, read_body, route_request

Arguments = Mapping[str, Any]
Route = tuple[str, str]
"""A method and a path of the route table."""
ARGUMENTS = {
    "before": "cursor",
    "wait": "wait_s",
    "duration": "for",
    "Idempotency-Key": "idempotency_key",
}
"""Parameters of routes, and the arguments of tools that are passed as these."""
VALUES = {
    "cursor": "call without cursor, then pass the cursor of each page",
    "since": 'pass since as {since: "2026-01-31T12:00:00Z"}',
    "until": 'pass until as {until: "2026-01-31T12:00:00Z"}',
    "for": 'pass for as {for: "2h"}',
    "limit": "pass limit as {limit: 10}",
    "idempotency_key": "pass a text of 1 to 255 characters, or none",
}
"""Arguments, and what to pass if a route refuses their value."""
SOURCES = {"job_id": "jobs {}", "name": "find {}"}
"""Arguments, and the call that shows their values."""
MAX_WAIT = 25.0
"""Seconds: less than the patience of clients."""


class ToolRefusal(DuctileError):
    """A refusal of the tool itself, before any request."""

    def __init__(self, code: str, message: str, **details: object) -> None:
        super().__init__(message, **details)
        self.code = code


@dataclass(frozen=True, slots=True)
class GatewayTool:
    name: str
    description: str
    properties: Mapping[str, Json]
    call: Callable[[ToolCall], Awaitable[Json]]
    returns: tuple[str, ...]
    """The keys of its result."""
    routes: tuple[Route, ...]
    """One of them decides whether a call is allowed."""
    also: tuple[Route, ...] = ()
    """Routes that are called after one of `routes`, or that add to its result."""
    required: tuple[str, ...] = ()
    is_destructive: bool = False
    """Whether it ends, replaces or repeats something, rather than adding to it."""
    is_repeatable: bool = False
    """Whether a repeated call changes nothing more."""

    @property
    def is_read_only(self) -> bool:
        return all(method == "GET" for method, _ in (*self.routes, *self.also))

    def is_visible(self, granted: frozenset[str], scope_of: Mapping[Route, str | None]) -> bool:
        """Whether the scopes allow at least one of its routes."""
        return any(allows_route(granted, scope_of[route]) for route in self.routes)

    def check_arguments(self, given: Arguments) -> None:
        for name in given:
            if name not in self.properties:
                close = nearest(name, self.properties)
                known = ", ".join(self.properties) or "none"
                fix = f"pass {close} instead of {name}" if close else f"its arguments: {known}"
                raise UsageError(f"{self.name} has no argument {name!r}", nearest=close, fix=fix)
        for name in self.required:
            if given.get(name) is None:
                example = _show_example(self.properties[name])
                fix = f"call {self.name} {{{name}: {example}}}"
                if name in SOURCES:
                    fix += f"; {SOURCES[name]} shows which there are"
                raise UsageError(f"{self.name} needs the argument {name!r}", fix=fix)
        for name, value in given.items():
            _check_value(name, value, self.properties[name])


_EXAMPLES = {
    "string": '"TEXT"',
    "integer": "10",
    "number": "10",
    "boolean": "true",
    "object": '{"plugin": "NAME"}',
}
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "object": dict,
}


def _check_value(name: str, value: Any, schema: Json) -> None:
    kind = schema.get("type")
    if value is None or kind is None:
        return
    is_flag = isinstance(value, bool)
    if not isinstance(value, _TYPES[kind]) or (is_flag and kind != "boolean"):
        fix = f"pass {name} as {{{name}: {_show_example(schema)}}}"
        raise UsageError(f"{name} must be of type {kind}", fix=fix)
    if isinstance(value, (int, float)) and not _is_finite(value):
        fix = f"pass {name} as {{{name}: {_show_example(schema)}}}"
        raise UsageError(f"{name} must be a finite number", fix=fix)
    if "enum" in schema and value not in schema["enum"]:
        close = nearest(str(value), schema["enum"])
        known = ", ".join(schema["enum"])
        fix = f"pass {name} as {{{name}: {json.dumps(close or schema['enum'][0])}}}"
        raise UsageError(f"{name} must be one of {known}", nearest=close, fix=fix)


def _show_example(schema: Json) -> str:
    """A value of this type."""
    if "enum" in schema:
        return json.dumps(schema["enum"][0])
    return _EXAMPLES.get(schema.get("type", ""), "VALUE")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False  # An integer that no float can hold.


def allows_route(granted: frozenset[str], required: str | None) -> bool:
    if required is None:
        return True
    if required == scopes.PLUGIN:
        # Which command it is decides later; here, whether it can be any.
        return scopes.ALL in granted or any(
            scopes.get_plugin(scope) is not None or scope.startswith("plugin:") for scope in granted
        )
    return scopes.allows(granted, required)


class ToolCall:
    """One call of a tool: its arguments, and requests to the routes that the tool declares."""

    def __init__(self, tool: GatewayTool, given: Arguments, caller: RouteCaller) -> None:
        self._tool, self._caller = tool, caller
        self.given = {name: value for name, value in given.items() if value is not None}

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def get(self, name: str, default: Any = None) -> Any:
        return self.given.get(name, default)

    def only(self, *names: str) -> Json:
        return {name: self.given[name] for name in names if name in self.given}

    @property
    def dry_run(self) -> bool:
        return bool(self.given.get("dry_run", False))

    def choose(self, *names: str) -> str:
        """Return which of these arguments is given; exactly one must be."""
        found = [name for name in names if name in self.given]
        if len(found) != 1:
            fix = f"call {self._tool.name} {{{names[0]}: ...}}, or with one of the others alone"
            raise UsageError(f"give exactly one of {', '.join(names)}", fix=fix)
        return found[0]

    def limit(self, default: int = 15, most: int = 50) -> int:
        return max(1, min(int(self.get("limit", default)), most))

    def wait(self) -> str:
        """Return the seconds to wait, as routes take them."""
        return f"{max(0.0, min(float(self.get('wait_s', 0)), MAX_WAIT)):.3f}"

    async def read(
        self, path: str, /, *, query: Mapping[str, Any] | None = None, **at: str
    ) -> Json:
        return await self._send("GET", path, at, query or {}, None, None)

    async def act(
        self,
        path: str,
        /,
        *,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, Any] | None = None,
        key: str | None = None,
        **at: str,
    ) -> Json:
        return await self._send("POST", path, at, query or {}, body or {}, key)

    async def _send(
        self,
        method: str,
        template: str,
        at: Mapping[str, str],
        query: Mapping[str, Any],
        body: Mapping[str, Any] | None,
        key: str | None,
    ) -> Json:
        declared = (*self._tool.routes, *self._tool.also)
        assert (method, template) in declared, f"{self._tool.name} declares no {template}"
        request = route_request(method, template, at, query, body, key)
        try:
            return read_body(*await self._caller.send(request))
        except RouteError as error:
            name, _, rest = error.message.partition(" ")
            if name in ARGUMENTS:
                name = ARGUMENTS[name]
                error.message = f"{name} {rest}"
            if name in VALUES and "fix" not in error.details:
                error.details["fix"] = VALUES[name]
            raise
