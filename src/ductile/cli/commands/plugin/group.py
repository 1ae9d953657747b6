"""`ductile plugin`: list plugins, run one, reset its breakers, and commands for its author."""

from __future__ import annotations

import sys
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi, JobRunner, Json, path_to
from ductile.cli.command import (
    CommandContext,
    Noun,
    compile_config,
    explain_unloaded,
    has_plugin,
)
from ductile.cli.commands import pause as pauses
from ductile.cli.commands.plugin.authoring import new, test, validate
from ductile.cli.commands.plugin.install import install, update
from ductile.cli.commands.plugin.state import state
from ductile.cli.commands.plugin.sync import sync
from ductile.cli.commands.plugin.trace import trace
from ductile.cli.display import RELOAD, print_attempt_output, print_reload_hint
from ductile.cli.options import (
    DEDUPE_TTL,
    DETACHED,
    PLUGIN,
    PRIORITY,
    TIMEOUT,
    choose_command,
    read_json,
    unknown_plugin,
)
from ductile.cli.progress import show_waiting
from ductile.errors import ConfigError, UsageError

plugin = Noun(
    "plugin",
    "Create, test, list and run plugins.",
    actions={"compare": "commands.plugin.compare:compare"},
)
plugin.add_command(new)
plugin.add_command(test)
plugin.add_command(trace)
plugin.add_command(validate)
plugin.add_command(sync)
plugin.add_command(install)
plugin.add_command(update)
plugin.add_command(state)

NOT_LOADED = "the running gateway has not loaded"


@plugin.read("list")
def listing(context: CommandContext) -> None:
    """List plugins with their state and commands."""
    with context.target.open_reader() as api:
        page = api.get("/plugins")
        context.warn_of_difference(api)
    context.show(page, _show)
    if any(row["state"] == "refused" for row in page["plugins"]):
        print_reload_hint(api)
    if api.running and (
        missing := _find_on_disk(context) - {row["name"] for row in page["plugins"]}
    ):
        output.print_stderr(f"{NOT_LOADED}: {', '.join(sorted(missing))}; run: {RELOAD}")


def _find_on_disk(context: CommandContext) -> frozenset[str]:
    """Return the plugins that a gateway would load now; none if that cannot be determined."""
    if context.api_url is not None:
        return frozenset()
    try:
        return frozenset(compile_config(context.target.loaded).registry.plugins)
    except ConfigError:
        return frozenset()


def _show(page: Json) -> None:
    output.print_table(
        page["plugins"],
        {
            "plugin": "name",
            "state": lambda row: "paused" if row["paused"] else row["state"],
            "version": lambda row: row.get("version"),
            "commands": lambda row: " ".join(row["commands"]),
            "note": lambda row: (
                row["reason"] or _sandbox_note(row) or _alias(row) or row.get("description")
            ),
        },
        empty="no plugins; add one to a directory in plugin_roots: ductile plugin new NAME",
    )


@plugin.read("show")
@click.argument("name", metavar="NAME", type=PLUGIN)
def show(context: CommandContext, name: str) -> None:
    """Show a plugin: its state, commands and environment."""
    with context.target.open_reader() as api:
        missing = explain_unloaded(context, name, "plugin", has_plugin)
        with missing, context.reading_gateway(api):
            found = api.get(path_to("plugin", name))
    context.show(found, _show_plugin)
    if found["state"] == "refused":
        print_reload_hint(api)


def _show_plugin(found: Json) -> None:
    shown = ("state", "reason", "version", "protocol", "description", "uses", "path", "environment")
    output.print_line(found["name"], bold=True)
    for key in shown:
        if found.get(key):
            output.print_line(f"  {key}: {found[key]}")
    if found.get("start"):
        output.print_line(f"  start: {_describe_start(found['start'])}")
    if found.get("sandbox"):
        _show_sandbox(found["sandbox"])
    for command in found["commands"]:
        about = f": {command['description']}" if command["description"] else ""
        output.print_line(f"  command {command['name']} ({command['type']}){about}")


def _describe_start(start: Json) -> str:
    if start["mode"] != "warm":
        return f"{start['mode']}: {start['reason']}"
    slots = output.format_count(start["slots"], "slot")
    return f"warm, its zygote takes {start['memory_bytes'] / 2**20:.0f} MiB, {slots}"


def _show_sandbox(sandbox: Json) -> None:
    output.print_line(
        f"  sandbox: {sandbox['level']}; enforced: {', '.join(sandbox['held']) or '-'}"
    )
    for name, reason in sandbox["not_held"].items():
        output.print_line(f"    not enforced: {name}: {reason}")
    for key in ("read", "write", "network", "memory", "processes", "cpu_time", "file_size"):
        if sandbox[key]:
            output.print_line(f"    {key}: {_describe_grant(key, sandbox[key])}")


def _describe_grant(key: str, value: Any) -> str:
    if key in ("memory", "file_size"):
        return f"{value / 2**20:g} MiB"
    if key == "cpu_time":
        return f"{value:g} s"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _sandbox_note(row: Json) -> str | None:
    missing = (row.get("sandbox") or {}).get("not_held")
    return f"its sandbox does not enforce: {', '.join(missing)}" if missing else None


def _alias(row: Json) -> str | None:
    return f"uses {row['uses']}" if row.get("uses") else None


@plugin.write("run")
@click.argument("name", metavar="NAME", type=PLUGIN)
@click.option(
    "--command", metavar="C", help="Command to run. Default: poll, handle or the only one."
)
@click.option("--payload", metavar="JSON|@FILE|-", help="Payload of the job; - reads stdin.")
@click.option("--payload-file", metavar="FILE", hidden=True, help="Same as --payload @FILE.")
@click.option("--dedupe-key", metavar="K", help="Skip if a job with this key already ran.")
@DEDUPE_TTL
@PRIORITY
@DETACHED
@TIMEOUT
def run(
    context: CommandContext,
    name: str,
    command: str | None,
    payload: str | None,
    payload_file: str | None,
    dedupe_key: str | None,
    dedupe_ttl: str | None,
    priority: str | None,
    detached: bool,
    timeout: float,
) -> int:
    """Run a plugin command once and show the result.

    A running gateway runs the job. Without one, this process does, and the jobs that follow stay
    queued until a gateway starts. A retry is not awaited. Exit 1 if the job did not succeed.
    """
    if payload_file is not None:
        if payload is not None:
            raise UsageError("--payload and --payload-file cannot be combined")
        payload = f"@{payload_file}"
    given = {
        "payload": read_json(payload),
        "dedupe_key": dedupe_key,
        "dedupe_ttl": dedupe_ttl,
        "priority": priority,
    }
    body = {key: value for key, value in given.items() if value is not None}
    if context.dry_run:
        with context.open_api() as api:
            chosen = _find_command(context, api, name, command)
            plan = context.post_to(api, path_to("plugin", name, chosen), body)
        context.show({**plan, **body}, _show_plan)
        return 0
    with context.target.open_runner(verbose=context.verbose) as runner:
        chosen = _find_command(context, runner, name, command)
        queued = runner.post(path_to("plugin", name, chosen), body)
        job = None if detached else _finish_job(context, runner, queued["job_id"], timeout)
    if job is None:
        context.show(queued, _show_queued)
        return 0
    context.show({**job, "deduplicated": queued["deduplicated"]}, _show_outcome)
    return 0 if job["status"] == "succeeded" else 1


def _finish_job(context: CommandContext, runner: JobRunner, job_id: str, timeout: float) -> Json:
    def report_wait(reason: str) -> None:
        if context.verbose or sys.stderr.isatty():
            output.print_stderr(f"queued: {reason}")

    try:
        with show_waiting(f"waiting for job {job_id}"):
            return runner.finish_job(job_id, timeout, report_wait)
    except KeyboardInterrupt:
        output.print_stderr(f"interrupted; job {job_id} has not finished")
        raise


def _find_command(context: CommandContext, api: GatewayApi, name: str, wanted: str | None) -> str:
    """Return the command to run; raise `UsageError` if there is no such plugin or command."""
    rows = api.get("/plugins")["plugins"]
    loaded = {row["name"]: row for row in rows if row["commands"]}
    if name not in loaded:
        found = next((row for row in rows if row["name"] == name), None)
        if found is None and api.running and name in _find_on_disk(context):
            raise UsageError(f"{NOT_LOADED} plugin {name}; run: {RELOAD}", plugin=name)
        if found is None:
            raise unknown_plugin(name, loaded)
        from ductile.engine.ingress.enqueue import enable_command

        run = {"run": enable_command(name)} if found["state"] in ("available", "disabled") else {}
        if found["state"] == "available":
            line = f"add `{name}: {{}}` under plugins in the configuration"
            raise UsageError(
                f"plugin {name} is bundled, but not configured; {line}", plugin=name, **run
            )
        is_refused = api.running and found["state"] == "refused"
        then = f"; after fixing it, run: {RELOAD}" if is_refused else ""
        why = f"{found['state']}: {found['reason']}{then}"
        raise UsageError(f"plugin {name} is {why}", plugin=name, **run)
    return choose_command(name, loaded[name]["commands"], wanted)


@plugin.write("reset-breaker")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
def reset_breaker(context: CommandContext, name: str) -> None:
    """Close a plugin's circuit breakers.

    Its schedules fire again.
    """
    context.show(context.post(path_to("system", "reset", name)), _show_reset)


def _show_reset(done: Json) -> None:
    closed = "would close" if done.get("dry_run") else "closed"
    commands = ", ".join(done["closed"])
    result = f"{closed} the breaker of {commands}" if commands else "no breaker was open"
    output.print_line(f"{done['plugin']}: {result}")


@plugin.write("pause")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
@pauses.pause_options
def pause(context: CommandContext, name: str, **options: str | None) -> None:
    """Keep a plugin's jobs queued until it is resumed.

    Jobs are still enqueued, also by schedules. Running jobs continue.
    """
    with explain_unloaded(context, name, "plugin", has_plugin):
        pauses.pause(context, "plugins", name, **options)


@plugin.write("resume")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
def resume(context: CommandContext, name: str) -> None:
    """Run the jobs of a paused plugin again."""
    pauses.resume(context, "plugins", name)


def _show_plan(plan: Json) -> None:
    what = f"{plan['plugin']} {plan['command']}"
    if plan["deduplicated"]:
        output.print_line(f"would not run {what}: job {plan['job_id']} has this dedupe key")
        return
    output.print_line(f"would run {what}")
    if "payload" in plan:
        output.print_section("payload", output.format_value(plan["payload"]))


def _show_queued(job: Json) -> None:
    if job["deduplicated"]:
        same = f"job {job['job_id']} has this dedupe key ({job['status']})"
        output.print_line(f"not queued: {same}")
    else:
        output.print_line(f"queued job {job['job_id']}")


def _show_outcome(job: Json) -> None:
    last = job["attempts"][-1] if job["attempts"] else None
    status = last["status"] if last else job["status"]
    took = f" in {output.format_duration((last['duration_ms'] or 0) / 1000)}" if last else ""
    name = output.escape(f"{job['plugin']} {job['command']}")
    click.echo(f"{click.style(name, bold=True)} {output.format_status(status)}{took}")
    if job["deduplicated"]:
        output.print_line("not run again: a job with this dedupe key exists")
    if last is not None:
        show_response(last["result"])
        print_attempt_output(last)
    if job.get("next_retry_at"):
        turn = f"attempt {job['attempt']} of {job['max_attempts']}"
        output.print_line(f"{turn} is due at {output.format_time(job['next_retry_at'])}")
    elif job.get("waits_for"):
        output.print_line(job["waits_for"])
    elif job["status"] == "running":
        output.print_line("not finished yet; it continues without this command")
    output.print_line(f"job {job['job_id']}", fg="bright_black")


def show_response(response: Any) -> None:
    if not isinstance(response, dict):
        return
    if response.get("result") is not None:
        output.print_text(output.format_value(response["result"]))
    for event in response.get("events") or ():
        kind = output.escape(str(event.get("type")))
        output.print_text(f"event {kind}: {output.format_value(event.get('payload'))}")
