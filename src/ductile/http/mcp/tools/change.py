"""Tools that change the gateway itself: its configuration and its plugins."""

from __future__ import annotations

from typing import Any

from ductile.core.values.suggest import nearest
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.http.mcp.results import Json, mark, pick, shorten
from ductile.http.mcp.tool import GatewayTool, ToolCall, ToolRefusal
from ductile.http.mcp.tools.act import DRY_RUN
from ductile.http.mcp.tools.observe import TEXT, word_of

READS = frozenset({"check", "plan", "watch", "history"})
COMPARED_JOBS = 10
SHOWN_MEMBERS = 20
TRIAL = (
    "plugin",
    "command",
    "status",
    "exit_code",
    "duration_ms",
    "error",
    "response",
    "stdout",
    "stderr",
    "advice",
    "goes_to",
    "retry",
)


async def config(call: ToolCall) -> Json:
    action = call["action"]
    if action == "view":
        return shorten(await _view(call))
    if action in READS:
        query = call.only("plan") if action == "watch" else {}
        return shorten(mark(await call.read(f"/config/{action}", query=query)))
    if action in ("apply", "revert"):
        return await _put_in_force(call, action)
    if action == "reload":
        done = await call.act("/system/reload", body={"dry_run": call.dry_run})
        return shorten({**done, "dry_run": call.dry_run, "done": not call.dry_run})
    if "path" not in call.given or "value" not in call.given:
        fix = 'call config {action: "set", path: "plugins.NAME.config.KEY", value: VALUE}'
        raise UsageError("set needs the path of the setting and its value", fix=fix)
    body = {"path": call["path"], "value": call["value"], "dry_run": call.dry_run}
    changed = await call.act("/config/set", body=body)
    if call.dry_run or not changed["changed"]:
        return shorten({**changed, "dry_run": call.dry_run, "done": False})
    try:
        await call.act("/system/reload", body={})
    except DuctileError as error:
        # The file is written: to report a plain failure would be wrong as well.
        note = f"written, not in force: {error.message}"
        return shorten({**changed, "done": False, "in_force": False, "note": note})
    return shorten({**changed, "done": True, "in_force": True})


async def _put_in_force(call: ToolCall, action: str) -> Json:
    """Apply a plan, or return to a snapshot; a dry run shows the plan with its id."""
    if not call.dry_run and "plan" not in call.given:
        raise ToolRefusal("plan_needed", f"{action} needs the id of a plan; dry_run returns it")
    given = call.only("plan", "snapshot") if action == "revert" else call.only("plan")
    done = await call.act(f"/config/{action}", body={**given, "dry_run": call.dry_run})
    return shorten(mark({**done, "dry_run": call.dry_run, "done": not call.dry_run}))


async def _view(call: ToolCall) -> Json:
    """Return the part of the configuration in force at a path, or the names at its top."""
    page = await call.read("/config/view")
    found: Any = page.get("config", page)
    path = str(call.get("path", ""))
    if not path:
        return {"sections": sorted(found)}
    for part in path.replace("[", ".").replace("]", "").split("."):
        members = _members(found)
        if part not in members:
            close = nearest(part, members)
            known = ", ".join(sorted(members)[:SHOWN_MEMBERS]) or "none"
            fix = f"view one of {known}" if close is None else None
            raise NotFound(f"{path} is not set: there is no {part!r}", nearest=close, fix=fix)
        found = members[part]
    return {"path": path, "untrusted_value": found}


def _members(value: Any) -> dict[str, Any]:
    """Return the members of a table, or of a list by position and by name."""
    if isinstance(value, dict):
        return value
    rows = value if isinstance(value, list) else []
    named = {str(row["name"]): row for row in rows if isinstance(row, dict) and "name" in row}
    return {**{str(at): row for at, row in enumerate(rows)}, **named}


async def plugin(call: ToolCall) -> Json:
    action, name = call["action"], str(call["name"])
    if action == "scaffold":
        body = {"name": name, **call.only("language"), "dry_run": call.dry_run}
        done = await call.act("/plugins", body=body)
        return shorten({**done, "done": not call.dry_run})
    if action == "validate":
        done = await call.read("/plugins/{plugin}/validate", plugin=name)
        return shorten({**done, "done": True})
    if action == "compare":
        path = "/plugins/{plugin}/compare"
        done = await call.act(path, body={"limit": COMPARED_JOBS}, plugin=name)
        return shorten({**mark(pick(done, "is_loaded", "summary", "jobs")), "done": True})
    if "command" not in call.given:
        fix = f"find {{name: {name!r}}} shows its commands"
        raise UsageError("test needs the command of the plugin", fix=fix)
    path = "/plugins/{plugin}/test/{command}"
    body = call.only("payload")
    done = await call.act(path, body=body, plugin=name, command=str(call["command"]))
    return shorten({**mark(pick(done, *TRIAL)), "done": True})


CHANGING = (
    GatewayTool(
        "config",
        "View a setting in force, change one (written, then loaded), or plan the files, apply the "
        "id of that plan, watch its error rates, revert.",
        {
            "action": word_of(
                *("check", "view", "set", "reload"),
                *("plan", "apply", "watch", "history", "revert"),
            ),
            "plan": TEXT,
            "snapshot": TEXT,
            "path": {"type": "string", "description": "such as plugins.echo.retry"},
            "value": {},
            "dry_run": DRY_RUN,
        },
        config,
        ("ok", "diff", "done"),
        (
            ("GET", "/config/check"),
            ("GET", "/config/view"),
            ("GET", "/config/plan"),
            ("GET", "/config/watch"),
            ("GET", "/config/history"),
            ("POST", "/config/apply"),
            ("POST", "/config/revert"),
            ("POST", "/config/set"),
            ("POST", "/system/reload"),
        ),
        required=("action",),
        is_destructive=True,
        is_repeatable=True,
    ),
    GatewayTool(
        "plugin",
        "Create a plugin from a template, validate its files, test it once, or compare it with "
        "its last jobs.",
        {
            "action": word_of("scaffold", "validate", "test", "compare"),
            "name": TEXT,
            "language": word_of("python", "sh", "node"),
            "command": TEXT,
            "payload": {},
            "dry_run": DRY_RUN,
        },
        plugin,
        ("ok", "status", "files", "done"),
        (
            ("POST", "/plugins"),
            ("GET", "/plugins/{plugin}/validate"),
            ("POST", "/plugins/{plugin}/test/{command}"),
            ("POST", "/plugins/{plugin}/compare"),
        ),
        required=("action", "name"),
        is_destructive=True,
    ),
)
