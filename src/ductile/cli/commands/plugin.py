"""`ductile plugin`: what there is, and running one by hand. `author` has the rest."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Door, Json, Workplace, path_to
from ductile.cli.command import CommandContext, Noun, blueprint_of
from ductile.cli.commands.job import RELOAD, hint_at_reload, show_words
from ductile.cli.options import DEDUPE_TTL, PATIENCE, PLUGIN
from ductile.cli.options import payload as read_payload
from ductile.core.jobs.commands import HANDLE, POLL
from ductile.core.values.suggest import did_you_mean
from ductile.errors import ConfigError, UsageError

plugin = Noun("plugin", "Create, test, list and run plugins.")

PREFERRED = (POLL, HANDLE)
UNSEEN = "the running gateway has not loaded"


@plugin.read("list")
def listing(call: CommandContext) -> None:
    """List plugins with their state and commands."""
    with call.site.reading() as door:
        page = door.get("/plugins")
    call.show(page, _show)
    if any(row["state"] == "refused" for row in page["plugins"]):
        hint_at_reload(door)
    if door.running and (unseen := _on_disk(call) - {row["name"] for row in page["plugins"]}):
        output.aside(f"{UNSEEN}: {', '.join(sorted(unseen))}; run: {RELOAD}")


def _on_disk(call: CommandContext) -> frozenset[str]:
    """The plugins that a gateway would load now, as far as can be told from here."""
    if call.api_url is not None:
        return frozenset()
    try:
        return frozenset(blueprint_of(call.site.loaded).registry.plugins)
    except ConfigError:
        return frozenset()


def _show(page: Json) -> None:
    output.table(
        ("plugin", "state", "version", "commands", "note"),
        (
            (
                row["name"],
                row["state"],
                row.get("version"),
                " ".join(row["commands"]),
                row["reason"] or _alias(row) or row.get("description"),
            )
            for row in page["plugins"]
        ),
        empty="no plugins; add one to a directory in plugin_roots: ductile plugin new NAME",
    )


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
@click.option("--async", "detached", is_flag=True, help="Do not wait for the end.")
@PATIENCE
def run(
    call: CommandContext,
    name: str,
    command: str | None,
    payload: str | None,
    payload_file: str | None,
    dedupe_key: str | None,
    dedupe_ttl: str | None,
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
    given = {"payload": read_payload(payload), "dedupe_key": dedupe_key, "dedupe_ttl": dedupe_ttl}
    body = {key: value for key, value in given.items() if value is not None}
    if call.dry_run:
        with call.site.reading() as door:
            planned = {"plugin": name, "command": _command(call, door, name, command), **body}
        call.show({"dry_run": True, **planned}, _show_plan)
        return 0
    with call.site.working(verbose=call.verbose) as place:
        chosen = _command(call, place, name, command)
        answer = place.post(path_to("plugin", name, chosen), body)
        job = None if detached else _finish(call, place, answer["job_id"], timeout)
    if job is None:
        call.show(answer, _show_queued)
        return 0
    call.show({**job, "deduplicated": answer["deduplicated"]}, _show_outcome)
    return 0 if job["status"] == "succeeded" else 1


def _finish(call: CommandContext, place: Workplace, job_id: str, timeout: float) -> Json:
    def waiting(why: str) -> None:
        if call.verbose or sys.stderr.isatty():
            output.aside(f"queued: {why}")

    try:
        with output.working(f"job {job_id} has not finished"):
            return place.finish(job_id, timeout, waiting)
    except KeyboardInterrupt:
        output.aside(f"interrupted; job {job_id} has not finished")
        raise


def _command(call: CommandContext, door: Door, name: str, wanted: str | None) -> str:
    """The command that is meant; `UsageError` where there is no such plugin or command."""
    rows = door.get("/plugins")["plugins"]
    loaded = {row["name"]: row for row in rows if row["commands"]}
    if name not in loaded:
        found = next((row for row in rows if row["name"] == name), None)
        if found is None and door.running and name in _on_disk(call):
            raise UsageError(f"{UNSEEN} plugin {name}; run: {RELOAD}", plugin=name)
        if found is None:
            raise UsageError(f"unknown plugin {name!r}{did_you_mean(name, loaded)}", plugin=name)
        is_refused = door.running and found["state"] == "refused"
        then = f"; after fixing it, run: {RELOAD}" if is_refused else ""
        why = f"{found['state']}: {found['reason']}{then}"
        raise UsageError(f"plugin {name} is {why}", plugin=name)
    return choose_command(name, loaded[name]["commands"], wanted)


def choose_command(name: str, known: Mapping[str, str], wanted: str | None) -> str:
    """The one of a plugin's commands that is meant."""
    if wanted is not None:
        if wanted not in known:
            listed = ", ".join(sorted(known))
            raise UsageError(f"plugin {name} has no command {wanted!r}; it has: {listed}")
        return wanted
    usual = next((command for command in PREFERRED if command in known), None)
    if usual is None and len(known) != 1:
        listed = ", ".join(sorted(known))
        raise UsageError(f"plugin {name} has several commands; choose with --command: {listed}")
    return usual or next(iter(known))


@plugin.write("reset-breaker")
@click.argument("name", metavar="PLUGIN", type=PLUGIN)
def reset_breaker(call: CommandContext, name: str) -> None:
    """Close a plugin's circuit breakers.

    Its schedules fire again.
    """
    answer = call.act(path_to("system", "reset", name))
    call.show(answer, _show_reset)


def _show_reset(answer: Json) -> None:
    would = "would close" if answer.get("dry_run") else "closed"
    commands = ", ".join(answer["closed"])
    done = f"{would} the breaker of {commands}" if commands else "no breaker was open"
    output.line(f"{answer['plugin']}: {done}")


def _show_plan(plan: Json) -> None:
    output.line(f"would run {plan['plugin']} {plan['command']}")
    if "payload" in plan:
        output.section("payload", output.value(plan["payload"]))


def _show_queued(answer: Json) -> None:
    if answer["deduplicated"]:
        output.line(f"not queued: job {answer['job_id']} has this dedupe key ({answer['status']})")
    else:
        output.line(f"queued job {answer['job_id']}")


def _show_outcome(job: Json) -> None:
    last = job["attempts"][-1] if job["attempts"] else None
    status = last["status"] if last else job["status"]
    took = f" in {output.span((last['duration_ms'] or 0) / 1000)}" if last else ""
    name = output.safe(f"{job['plugin']} {job['command']}")
    click.echo(f"{click.style(name, bold=True)} {output.coloured(status)}{took}")
    if job["deduplicated"]:
        output.line("not run again: a job with this dedupe key exists")
    if last is not None:
        _show_response(last["result"])
        show_words(last)
    if job.get("next_retry_at"):
        turn = f"attempt {job['attempt']} of {job['max_attempts']}"
        output.line(f"{turn} is due at {output.when(job['next_retry_at'])}")
    elif job.get("waits_for"):
        output.line(job["waits_for"])
    elif job["status"] == "running":
        output.line("not finished yet; it continues without this command")
    output.line(f"job {job['job_id']}", fg="bright_black")


def _show_response(response: Any) -> None:
    if not isinstance(response, dict):
        return
    if response.get("result") is not None:
        output.line(output.value(response["result"]))
    for event in response.get("events") or ():
        output.line(f"event {event.get('type')}: {output.value(event.get('payload'))}")
