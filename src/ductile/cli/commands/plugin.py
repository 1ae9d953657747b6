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

plugin = Noun("plugin", "Plugins: make, test, list, run one.")

PREFERRED = (POLL, HANDLE)
UNSEEN = "the running gateway has not seen"


@plugin.read("list")
def listing(call: CommandContext) -> None:
    """List every plugin that was found or configured, and why one is not used."""
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
        empty="no plugins; put one into a directory that plugin_roots names",
    )


def _alias(row: Json) -> str | None:
    return f"uses {row['uses']}" if row.get("uses") else None


@plugin.write("run")
@click.argument("name", metavar="NAME", type=PLUGIN)
@click.option("--command", metavar="C", help="By default poll, else handle, else its only one.")
@click.option("--payload", metavar="JSON|@FILE|-", help="The job's payload; - reads stdin.")
@click.option("--payload-file", metavar="FILE", hidden=True, help="As --payload @FILE.")
@click.option("--dedupe-key", metavar="K", help="Run nothing if a job with this key did.")
@DEDUPE_TTL
@click.option("--async", "detached", is_flag=True, help="Queue it and do not wait.")
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
    """Run a command of a plugin once, and show the result.

    A running gateway runs it; without one this process does, and what the job causes stays
    queued until a start. The exit code is 1 where the job did not succeed. A job that failed
    and may be retried is not waited for.
    """
    if payload_file is not None:
        if payload is not None:
            raise UsageError("--payload and --payload-file exclude each other")
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
        with output.working(f"job {job_id} is not over"):
            return place.finish(job_id, timeout, waiting)
    except KeyboardInterrupt:
        output.aside(f"interrupted; job {job_id} is not over")
        raise


def _command(call: CommandContext, door: Door, name: str, wanted: str | None) -> str:
    """The command that is meant; `UsageError` where there is no such plugin or command."""
    rows = door.get("/plugins")["plugins"]
    loaded = {row["name"]: row for row in rows if row["commands"]}
    if name not in loaded:
        found = next((row for row in rows if row["name"] == name), None)
        if found is None and door.running and name in _on_disk(call):
            raise UsageError(f"{UNSEEN} plugin {name} yet; run: {RELOAD}", plugin=name)
        if found is None:
            raise UsageError(f"unknown plugin {name!r}{did_you_mean(name, loaded)}", plugin=name)
        then = f"; then: {RELOAD}" if door.running and found["state"] == "refused" else ""
        why = f"{found['state']}: {found['reason']}{then}"
        raise UsageError(f"unknown plugin {name!r} ({why})", plugin=name)
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


def _show_plan(plan: Json) -> None:
    output.line(f"would run {plan['plugin']} {plan['command']}")
    if "payload" in plan:
        output.section("payload", output.value(plan["payload"]))


def _show_queued(answer: Json) -> None:
    kept = "is already there" if answer["deduplicated"] else "is queued"
    output.line(f"job {answer['job_id']} {kept} ({answer['status']})")


def _show_outcome(job: Json) -> None:
    last = job["attempts"][-1] if job["attempts"] else None
    status = last["status"] if last else job["status"]
    took = f" in {output.span((last['duration_ms'] or 0) / 1000)}" if last else ""
    name = output.safe(f"{job['plugin']} {job['command']}")
    click.echo(f"{click.style(name, bold=True)} {output.coloured(status)}{took}")
    if job["deduplicated"]:
        output.line("not run again: a job with this dedupe key was there")
    if last is not None:
        _show_response(last["result"])
        show_words(last)
    if job.get("next_retry_at"):
        turn = f"attempt {job['attempt']} of {job['max_attempts']}"
        output.line(f"{turn} is due at {output.when(job['next_retry_at'])}")
    elif job.get("waits_for"):
        output.line(job["waits_for"])
    elif job["status"] == "running":
        output.line("it is not over; it goes on without this command")
    output.line(f"job {job['job_id']}", fg="bright_black")


def _show_response(response: Any) -> None:
    if not isinstance(response, dict):
        return
    if response.get("result") is not None:
        output.line(output.value(response["result"]))
    for event in response.get("events") or ():
        output.line(f"event {event.get('type')}: {output.value(event.get('payload'))}")
