"""Tools, resources and prompts of the MCP server: which a caller may use, and calls of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from ductile._fast_dataclass import dataclass
from ductile.core.values.scopes import normalize
from ductile.core.values.suggest import nearest
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.http.crash_log import log_crash
from ductile.http.mcp.refusals import describe_refusal
from ductile.http.mcp.results import Json, render
from ductile.http.mcp.route_caller import RouteCaller, read_body, route_request
from ductile.http.mcp.tool import GatewayTool, Route, ToolCall
from ductile.http.mcp.tools.act import ACTING
from ductile.http.mcp.tools.change import CHANGING
from ductile.http.mcp.tools.observe import OBSERVING
from ductile.operations.authoring.recipes import RECIPES, RULES, Recipe

TOOLS: Mapping[str, GatewayTool] = {t.name: t for t in (*OBSERVING, *ACTING, *CHANGING)}
SCHEME = "ductile://"
TEMPLATES = {
    "job/{id}": "A job: its state, why, error and result.",
    "job/{id}/log": "The log of a job's last attempt.",
    "pipeline/{name}": "A pipeline and its steps.",
    "docs/{topic}": f"How to work here; topics: {', '.join(('rules', *RECIPES))}.",
}
PROMPTS: Mapping[str, tuple[str, str, tuple[Recipe, ...]]] = {
    "diagnose_job": (
        "Find out why a job failed or does not run, and repair it.",
        "job_id",
        (RECIPES["diagnose"], RECIPES["repair"]),
    ),
    "write_plugin": ("Write a new plugin, test it and run it.", "name", (RECIPES["plugin"],)),
}


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    content: Json
    is_error: bool

    @property
    def text(self) -> str:
        return render(self.content)


@cache
def route_scopes() -> Mapping[Route, str | None]:
    from ductile.http.route_table import ENDPOINTS

    return {(endpoint.method, endpoint.path): endpoint.token_scope for endpoint in ENDPOINTS}


async def visible_tools(caller: RouteCaller) -> list[GatewayTool]:
    """Return the tools of which the caller's scopes allow at least a part."""
    request = route_request("GET", "/ui/session", {}, {}, None, None)
    granted = normalize(read_body(*await caller.send(request))["scopes"])
    return [tool for tool in TOOLS.values() if tool.is_visible(granted, route_scopes())]


async def call_tool(caller: RouteCaller, name: str, given: Mapping[str, Any]) -> ToolOutcome:
    """Call a tool; every refusal is an outcome with a code and a fix."""
    try:
        tool = TOOLS.get(name)
        if tool is None:
            close = nearest(name, TOOLS)
            known = f"call {close}" if close else f"call one of {', '.join(TOOLS)}"
            raise NotFound(f"there is no tool {name!r}", nearest=close, fix=known)
        tool.check_arguments(given)
        return ToolOutcome(await tool.call(ToolCall(tool, given, caller)), is_error=False)
    except DuctileError as error:
        return ToolOutcome(describe_refusal(error), is_error=True)
    except Exception as error:  # noqa: BLE001 - every call has a result
        # A bug of a tool: its traceback is for the operator, not for the agent.
        log_crash("tool failed", error)
        return ToolOutcome(describe_refusal(DuctileError("internal error")), is_error=True)


async def read_resource(caller: RouteCaller, uri: str) -> str:
    """Return the text of a resource; raises `DuctileError`."""
    kind, _, rest = uri.removeprefix(SCHEME).partition("/")
    id, _, part = rest.partition("/")
    if uri.startswith(SCHEME) and id:
        if kind == "job" and part in ("", "log"):
            given = {"job_id": id, "part": part or "summary"}
            return _text_of(await call_tool(caller, "job", given))
        if kind == "pipeline" and not part:
            return _text_of(await call_tool(caller, "find", {"name": id}))
        if kind == "docs" and not part:
            return read_topic(id)
    known = ", ".join(f"{SCHEME}{path}" for path in TEMPLATES)
    raise NotFound(f"there is no resource {uri}", fix=f"read one of {known}")


def _text_of(outcome: ToolOutcome) -> str:
    if outcome.is_error:
        error = outcome.content["error"]
        raise NotFound(str(error["message"]), fix=error["fix"], nearest=error.get("nearest"))
    return outcome.text


def read_topic(topic: str) -> str:
    if topic == "rules":
        return RULES
    recipe = RECIPES.get(topic)
    if recipe is None:
        known = ("rules", *RECIPES)
        close, fix = nearest(topic, known), f"read one of {', '.join(known)}"
        raise NotFound(f"there is no topic {topic!r}", nearest=close, fix=fix)
    return f"{recipe.as_tools()}\n\nOn the command line:\n\n{recipe.as_commands()}"


def write_prompt(name: str, given: Mapping[str, str]) -> str:
    """Return the text of a prompt; raises `UsageError`."""
    found = PROMPTS.get(name)
    if found is None:
        close, fix = nearest(name, PROMPTS), f"get one of {', '.join(PROMPTS)}"
        raise UsageError(f"there is no prompt {name!r}", nearest=close, fix=fix)
    about, argument, recipes = found
    if not given.get(argument):
        fix = f"call it with arguments {{{argument}: TEXT}}"
        raise UsageError(f"the prompt {name} needs {argument}", fix=fix)
    parts = [about, f"{argument}: {given[argument]}", RULES, *(r.as_tools() for r in recipes)]
    return "\n\n".join(parts)
