"""`ductile system start`, `status`, `breaker` and `reload`: the running gateway."""

from __future__ import annotations

import gc
import json
import os
from typing import TYPE_CHECKING, Any

import click

from ductile.cli import output
from ductile.cli.command import CommandContext, compile_config, read, write
from ductile.cli.options import PLUGIN, limit_option
from ductile.cli.progress import show_waiting
from ductile.errors import ConfigError, DuctileError, UsageError

if TYPE_CHECKING:
    from ductile.cli.client import GatewayApi, Json

MAX_NOTE_LENGTH = 200
MAX_COUNTED = 1000
"""Number of jobs that the gateway counts per command."""
MAX_FAILURES = 10
"""Number of commands with failed or dead jobs that `status` names."""
_M_ARENA_MAX = -8
"""As in `malloc.h`."""
NODE_VARIABLE = "DUCTILE_NODE"
"""The variable by which one configuration serves several nodes."""


@write("start")
@click.option("--node", metavar="NAME", help="Set DUCTILE_NODE for the configuration.")
def start(context: CommandContext, node: str | None) -> int:
    """Run the gateway in the foreground until SIGTERM or Ctrl-C.

    With --node, one configuration serves several nodes: it uses ${DUCTILE_NODE} where they differ.
    """
    if node is not None:
        os.environ[NODE_VARIABLE] = node
    if context.dry_run:
        context.show(_plan(context), _show_plan)
        return 0
    _share_arena()
    # The objects made at start live on: collecting garbage would take a tenth of the start.
    gc.disable()
    try:
        loaded = context.target.runnable
        from ductile.http.server.run import serve

        return serve(loaded, environ=os.environ, ready=_enable_gc)
    finally:
        gc.enable()


def _share_arena() -> None:
    """Have all threads allocate from one arena of glibc. They run one at a time, and each would
    keep free memory of its own: 2.5 MB in all."""
    import ctypes

    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, 1)


def _enable_gc(_: object) -> None:
    gc.freeze()
    gc.enable()


def _plan(context: CommandContext) -> dict[str, Any]:
    from ductile.engine.instance_lock import find_holder

    loaded = context.target.loaded
    registry = compile_config(loaded).registry
    holder = find_holder(loaded.settings.state_dir)
    return {
        "dry_run": True,
        "config": str(loaded.settings.config_dir),
        "state_dir": str(loaded.settings.state_dir),
        "workers": loaded.settings.service.max_workers,
        "plugins": sorted(registry.plugins),
        "refused": [refusal.name for refusal in registry.refused],
        "locked_by": None if holder is None else holder.pid,
        "locked": holder is not None,
    }


def _show_plan(plan: dict[str, Any]) -> None:
    workers, plugins = (
        output.format_count(plan["workers"], "worker"),
        output.format_count(len(plan["plugins"]), "plugin"),
    )
    output.print_line(f"would start {workers} with {plugins} on {plan['state_dir']}")
    if plan["refused"]:
        output.print_line(f"refused: {', '.join(plan['refused'])}", fg="yellow")
    if plan["locked"]:
        who = f"process {plan['locked_by']}" if plan["locked_by"] else "another process"
        output.print_line(f"but {who} has locked that directory", fg="red")


@read("status")
def status(context: CommandContext) -> None:
    """Show plugins, their health, the queue and the last runs."""
    waiting = show_waiting("checking the health of plugins", quiet=context.as_json)
    with context.target.open_reader() as api, waiting:
        page = api.get("/system/status")
        page["failing"] = _find_failing_parts(api) if api.running else []
        context.warn_of_difference(api)
    if not api.running:
        page |= {"running_gateway": False, "boot": None, "uptime_seconds": None}
    page["state_dir"] = str(context.target.state_dir)
    page |= _list_checks(context, page)
    context.show(page, _show_status)


def _find_failing_parts(api: GatewayApi) -> list[Json]:
    """Return the parts of the running gateway that fail."""
    try:
        health = api.get("/healthz")
    except DuctileError as failure:
        health = failure.details
        if health.get("status") != "error":
            raise
        if "failing" not in health:
            return [{"part": "gateway", "error": failure.message, "critical": True}]
    failing: list[Json] = health.get("failing", [])
    return failing


def _list_checks(context: CommandContext, page: dict[str, Any]) -> dict[str, Any]:
    """Return `healthy` and `checks`, which scripts around the Go program read."""
    sick = [
        row["name"] for row in page["plugins"] if row["health"] and not row["health"]["healthy"]
    ]
    refused = [row["name"] for row in page["plugins"] if row["state"] == "refused"]
    gateway = "a gateway is running" if page["running_gateway"] else "no gateway is running"
    broken = next((part["error"] for part in page["failing"] if part["critical"]), None)
    checks = [
        _check_config(context),
        {
            "name": "state_db",
            "ok": broken is None,
            "path": page["state_dir"],
            "detail": broken or "ledger is readable",
        },
        {"name": "pid_lock", "ok": True, "path": page["state_dir"], "detail": gateway},
        {"name": "plugins_loaded", "ok": not refused, "detail": _name_all("refused", refused)},
        {"name": "plugins_healthy", "ok": not sick, "detail": _name_all("unhealthy", sick)},
    ]
    return {"healthy": all(check["ok"] for check in checks), "checks": checks}


def _check_config(context: CommandContext) -> dict[str, Any]:
    """Whether the configuration on disk loads; a running gateway may have loaded an earlier one."""
    path, problem = None, None
    if context.api_url is None:
        try:
            path = str(context.target.loaded.settings.config_dir)
        except ConfigError as error:
            problem = str(error.problems[0])
    detail = problem or "configuration loaded"
    return {"name": "config_load", "ok": problem is None, "path": path, "detail": detail}


def _name_all(what: str, names: list[str]) -> str:
    return f"{what}: {', '.join(names)}" if names else f"none is {what}"


def _show_status(page: dict[str, Any]) -> None:
    workers = output.format_count(page["workers"], "worker")
    if page["running_gateway"]:
        seconds = page["uptime_seconds"]
        up = output.format_duration(seconds) if seconds else "less than a second"
        output.print_line(f"running for {up}, {workers}, version {page['version']}", fg="green")
    else:
        output.print_line("no gateway is running; showing the state on disk", fg="yellow")
    output.print_line(
        f"{page['queue_depth']} queued, {page['running']} running, in {page['state_dir']}"
    )
    for part in page["failing"]:
        colour = "red" if part["critical"] else "yellow"
        output.print_line(f"its {part['part']} fails: {part['error']}", fg=colour)
    if page["approvals"]:
        waiting = output.format_count(page["approvals"], "approval")
        output.print_line(f"{waiting} to decide: ductile approval list", fg="yellow")
    if page["paused"]:
        from ductile.cli.commands.pause import describe

        output.print_line(describe(page["paused"]), fg="yellow")
    _show_alerts(page)
    for row in page["failures"][:MAX_FAILURES]:
        _show_failure(row)
    if more := page["failures"][MAX_FAILURES:]:
        output.print_line(f"{output.format_count(len(more), 'other command')} with such jobs")
    output.print_line()
    output.print_table(
        page["plugins"],
        {
            "plugin": "name",
            "state": lambda row: "paused" if row["paused"] else row["state"],
            "version": lambda row: row.get("version"),
            "health": _health,
            "last run": _last_run,
            "note": _note,
        },
        empty="no plugins; add one to a directory in plugin_roots: ductile plugin new NAME",
    )
    stored = [row for row in page["plugins"] if row["plugin_state"]]
    if stored:
        output.print_line()
        output.print_table(
            stored,
            {
                "plugin": "name",
                "updated": lambda row: output.format_time(row["plugin_state"]["updated_at"]),
                "stored state": _stored_state,
            },
        )


def _show_alerts(page: dict[str, Any]) -> None:
    for row in page["alerts"]:
        since = output.format_time(row["since"])
        text = f"alert {row['rule']} fires for {row['group']} since {since}"
        output.print_line(
            f"{text}: {row['last_error'] or 'ductile alert show ' + row['rule']}", fg="red"
        )
    for row in page["undelivered_alerts"]:
        at = output.format_time(row["created_at"])
        text = f"alert {row['rule']} of {at} did not reach {row['to']}"
        output.print_line(f"{text}: {row['error']}", fg="red")


def _show_failure(row: dict[str, Any]) -> None:
    jobs = output.format_count(row["jobs"], f"{row['status']} job")
    if row["jobs"] >= MAX_COUNTED:
        jobs = f"at least {jobs}"
    name = row["step_path"] if row["plugin"] == "core.wait" else f"{row['plugin']} {row['command']}"
    error = output.clip_middle(row["last_error"] or "no error", MAX_NOTE_LENGTH)
    output.print_line(f"{jobs} of {name}: {error} (ductile job why {row['job_id']})", fg="red")


def _stored_state(row: Json) -> str:
    state = row["plugin_state"]
    if state["value"] is None:
        return f"{state['bytes']} bytes: ductile system plugin-facts {row['name']}"
    return output.clip(json.dumps(state["value"], ensure_ascii=False), MAX_NOTE_LENGTH)


def _health(row: Json) -> str | None:
    if row["health"] is None:
        return None
    return "healthy" if row["health"]["healthy"] else "unhealthy"


def _last_run(row: Json) -> str | None:
    last = row["last_run"]
    return f"{output.format_time(last['completed_at'])} {last['status']}" if last else None


def _note(row: Json) -> str | None:
    health, last = row["health"], row["last_run"]
    problem = health["detail"] if health and not health["healthy"] else None
    note = row["reason"] or problem or (last["last_error"] if last else None)
    return output.clip_middle(note, MAX_NOTE_LENGTH) if note else None


@read("breaker")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
@click.option("--command", metavar="C", help="Show only the breaker of this command.")
@limit_option(100)
def breaker(context: CommandContext, name: str, command: str | None, limit: int) -> None:
    """Show a plugin's circuit breakers and their changes."""
    with context.target.open_reader() as api:
        from ductile.cli.client import path_to

        page = api.get(path_to("system", "breaker", name))
    known = [row["command"] for row in page["breakers"]]
    if command is not None and command not in known:
        raise UsageError(
            f"{name} has no breaker for {command}; it has: {', '.join(known) or 'none'}"
        )
    for part in ("breakers", "transitions"):
        page[part] = [row for row in page[part] if command in (None, row["command"])]
    page["transitions"] = page["transitions"][:limit]
    context.show(page, _show_breaker)


def _show_breaker(page: Json) -> None:
    output.print_table(
        page["breakers"],
        {
            "command": "command",
            "state": "state",
            "failures": "failure_count",
            "opened": output.time_of("opened_at"),
            "next probe": output.time_of("next_probe_at"),
            "last job": "last_job_id",
            "cause": lambda row: row["cause"] if row["failure_count"] else None,
        },
        empty=f"plugin {page['plugin']} has no schedule, so it has no breaker",
    )
    for change in page["transitions"]:
        states = f"{change['from_state']} -> {change['to_state']}"
        job = f", job {change['job_id']}" if change["job_id"] else ""
        count = output.format_count(change["failure_count"], "failure")
        output.print_line(
            f"{output.format_time(change['created_at'])}  {change['command']}  {states}  "
            f"{change['reason']}, {count}{job}"
        )


@write("reload")
@click.option("--all", "everywhere", is_flag=True, help="Reload every node of the ledger.")
def reload(context: CommandContext, everywhere: bool) -> int:
    """Reload the configuration of the running gateway.

    The new configuration is applied as a whole, or not at all. With --all, each node reads its own
    files; exit 1 unless all of them have reloaded.
    """
    client = context.require_gateway(
        "no gateway is running in {state_dir}, so there is nothing to reload"
    )
    if everywhere:
        answers = client.post("/nodes/reload", {"dry_run": context.dry_run})
        context.show(answers, _show_node_reloads)
        done = ("reloaded", "would reload")
        return 0 if all(node["status"] in done for node in answers["nodes"]) else 1
    result = client.get("/system/reload") if context.dry_run else client.post("/system/reload", {})
    context.show(result, _show_reload)
    return 0


def _show_node_reloads(answers: Json) -> None:
    for node in answers["nodes"]:
        output.print_line(f"node {node['name']}: {node['status']}")
        for problem in node.get("problems", ()):
            output.print_line(f"  {problem}", fg="red")
        for warning in node.get("warnings", ()):
            output.print_line(f"  warning: {warning}", fg="yellow")


def _show_reload(result: Json) -> None:
    for warning in result["warnings"]:
        output.print_line(f"warning: {warning}", fg="yellow")
    dry = result.get("dry_run")
    for name, reason in result["refused"].items():
        output.print_line(
            f"plugin {name} {'would be' if dry else 'is'} refused: {reason}", fg="yellow"
        )
    if not dry:
        output.print_line("reloaded")
        return
    for kind, changes in result["changes"].items():
        for change, names in changes.items():
            if names:
                output.print_line(f"{kind} {change}: {', '.join(names)}")
    if not any(names for changes in result["changes"].values() for names in changes.values()):
        output.print_line("nothing would change")
    output.print_line("would reload")
