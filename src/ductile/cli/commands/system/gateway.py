"""`ductile system`: start a gateway, and see how it is."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json, path_to
from ductile.cli.command import CommandContext, Noun, blueprint_of
from ductile.cli.options import PLUGIN, limited
from ductile.errors import NotRunning, UsageError

LONGEST_NOTE = 200

system = Noun("system", "Run, inspect and maintain the gateway.")


@system.write("start")
def start(call: CommandContext) -> int:
    """Run the gateway in the foreground until SIGTERM or Ctrl-C."""
    if call.dry_run:
        call.show(_plan(call), _show_plan)
        return 0
    # What a start makes is there to stay: to look through it for garbage is a tenth of it.
    gc.disable()
    try:
        loaded = call.site.loaded
        from ductile.http.server.run import serve

        return serve(loaded, environ=os.environ, ready=_collect)
    finally:
        gc.enable()


def _collect(_: object) -> None:
    gc.freeze()
    gc.enable()


def _plan(call: CommandContext) -> dict[str, Any]:
    from ductile.engine.instance_lock import find_running_pid

    loaded = call.site.loaded
    registry = blueprint_of(loaded).registry
    return {
        "dry_run": True,
        "config": str(loaded.settings.config_dir),
        "state_dir": str(loaded.settings.state_dir),
        "workers": loaded.settings.service.max_workers,
        "plugins": sorted(registry.plugins),
        "refused": [refusal.name for refusal in registry.refused],
        "locked_by": find_running_pid(loaded.settings.state_dir),
    }


def _show_plan(plan: dict[str, Any]) -> None:
    workers, plugins = (
        output.count(plan["workers"], "worker"),
        output.count(len(plan["plugins"]), "plugin"),
    )
    output.line(f"would start {workers} with {plugins} on {plan['state_dir']}")
    if plan["refused"]:
        output.line(f"refused: {', '.join(plan['refused'])}", fg="yellow")
    if plan["locked_by"]:
        output.line(f"but process {plan['locked_by']} has locked that directory", fg="red")


@system.read("status")
def status(call: CommandContext) -> None:
    """Show plugins, their health, the queue and the last runs."""
    with call.site.reading() as door:
        page = door.get("/system/status")
    if not door.running:
        page |= {"running_gateway": False, "boot": None, "uptime_seconds": None}
    page["state_dir"] = str(call.site.state_dir)
    call.show(page, _show_status)


def _show_status(page: dict[str, Any]) -> None:
    workers = output.count(page["workers"], "worker")
    if page["running_gateway"]:
        whole = page["uptime_seconds"]
        up = output.span(whole) if whole else "less than a second"
        output.line(f"running for {up}, {workers}, version {page['version']}", fg="green")
    else:
        output.line("no gateway is running; showing the state on disk", fg="yellow")
    output.line(f"{page['queue_depth']} queued, {page['running']} running, in {page['state_dir']}")
    output.line()
    output.table(
        ("plugin", "state", "version", "health", "last run", "note"),
        ((row["name"], row["state"], row.get("version"), *_recent(row)) for row in page["plugins"]),
        empty="no plugins; add one to a directory in plugin_roots: ductile plugin new NAME",
    )


def _recent(row: dict[str, Any]) -> tuple[str | None, str | None, str | None]:
    health, last = row["health"], row["last_run"]
    well = None if health is None else "healthy" if health["healthy"] else "unhealthy"
    ran = f"{output.when(last['completed_at'])} {last['status']}" if last else None
    sick = health["detail"] if health and not health["healthy"] else None
    note = row["reason"] or sick or (last["last_error"] if last else None)
    return well, ran, output.clipped(note, LONGEST_NOTE) if note else None


@system.read("breaker")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
@click.option("--command", metavar="C", help="Show only the breaker of this command.")
@limited(100)
def breaker(call: CommandContext, name: str, command: str | None, limit: int) -> None:
    """Show a plugin's circuit breakers and their changes."""
    with call.site.reading() as door:
        page = door.get(path_to("system", "breaker", name))
    known = [row["command"] for row in page["breakers"]]
    if command is not None and command not in known:
        raise UsageError(
            f"{name} has no breaker for {command}; it has: {', '.join(known) or 'none'}"
        )
    for part in ("breakers", "transitions"):
        page[part] = [row for row in page[part] if command in (None, row["command"])]
    page["transitions"] = page["transitions"][:limit]
    call.show(page, _show_breaker)


def _show_breaker(page: Json) -> None:
    output.table(
        ("command", "state", "failures", "opened", "last failure", "last job"),
        (
            (
                row["command"],
                row["state"],
                row["failure_count"],
                output.when(row["opened_at"]),
                output.when(row["last_failure_at"]),
                row["last_job_id"],
            )
            for row in page["breakers"]
        ),
        empty=f"plugin {page['plugin']} has no schedule, so it has no breaker",
    )
    for change in page["transitions"]:
        states = f"{change['from_state']} -> {change['to_state']}"
        job = f", job {change['job_id']}" if change["job_id"] else ""
        count = output.count(change["failure_count"], "failure")
        output.line(
            f"{output.when(change['created_at'])}  {change['command']}  {states}  "
            f"{change['reason']}, {count}{job}"
        )


@system.write("reload")
def reload(call: CommandContext) -> None:
    """Reload the configuration of the running gateway.

    The new configuration is applied as a whole, or not at all.
    """
    client = call.site.client()
    if client is None:
        raise NotRunning(
            f"no gateway is running in {call.site.state_dir}, so there is nothing to reload"
        )
    answer = client.get("/system/reload") if call.dry_run else client.post("/system/reload", {})
    call.show(answer, _show_reload)


def _show_reload(answer: Json) -> None:
    for warning in answer["warnings"]:
        output.line(f"warning: {warning}", fg="yellow")
    dry = answer.get("dry_run")
    for name, reason in answer["refused"].items():
        output.line(f"plugin {name} {'would be' if dry else 'is'} refused: {reason}", fg="yellow")
    if not dry:
        output.line("reloaded")
        return
    for kind, changes in answer["changes"].items():
        for change, names in changes.items():
            if names:
                output.line(f"{kind} {change}: {', '.join(names)}")
    output.line("would reload")


@system.write("demo")
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path),
    default="demo",
    show_default=True,
    help="Directory of the demo; existing files are kept.",
)
def demo(call: CommandContext, directory: Path) -> int:
    """Start a demo gateway with example plugins."""
    from ductile.cli.commands.system import demo

    where = directory.absolute()
    if call.dry_run:
        missing = [str(path) for path in demo.missing(where)]
        call.show(
            {"dry_run": True, "directory": str(where), "would_write": missing},
            lambda _: output.line(
                f"would write {len(missing)} files to {where} and start a gateway there"
            ),
        )
        return 0
    return demo.run(where)
