"""`ductile pipeline run`: start a pipeline and wait for its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

from ductile.cli import output
from ductile.cli.client import MAX_WAIT, GatewayClient, Json, path_to
from ductile.cli.command import CommandContext, explain_unloaded, write
from ductile.cli.commands.pipeline.dry_run import PAYLOAD, plan_start, show_plan
from ductile.cli.explain import is_plain_switch
from ductile.cli.options import DEDUPE_TTL, DETACHED, PIPELINE, PRIORITY, TIMEOUT, read_json
from ductile.core.jobs.state_machine import ENDED
from ductile.errors import NotRunning

SUCCESSFUL = frozenset({"succeeded", "skipped"})


@write("run")
@click.argument("name", metavar="NAME", type=PIPELINE)
@PAYLOAD
@click.option("--dedupe-key", metavar="K", help="Skip if a first step with this key already ran.")
@DEDUPE_TTL
@PRIORITY
@DETACHED
@TIMEOUT
def run(
    context: CommandContext,
    name: str,
    payload: str | None,
    dedupe_key: str | None,
    dedupe_ttl: str | None,
    priority: str | None,
    detached: bool,
    timeout: float,
) -> int:
    """Start a pipeline and wait for its end.

    The end includes every job that its events start, also by routes and in other pipelines.
    Each step is reported on a terminal or with -v. The pipeline's `on`, `from_plugin` and `if`
    are not evaluated: they apply to events. Exit 1 if the pipeline did not succeed in time.
    Needs a running gateway.
    """
    given = read_json(payload)
    if context.dry_run:
        context.show(plan_start(context, name, given), lambda plan: show_plan(context, plan))
        return 0
    client = context.require_gateway(
        "no gateway is running, and a pipeline needs one; start it (ductile start), "
        "or show what would run: ductile pipeline dry-run"
    )
    keys = {"dedupe_key": dedupe_key, "dedupe_ttl": dedupe_ttl}
    body = {"payload": given, "priority": priority, **keys}
    with explain_unloaded(context, name):
        started = client.post(
            f"{path_to('pipeline', name)}?async=true",
            {key: value for key, value in body.items() if value is not None},
        )
    if detached:
        context.show(started, _show_started)
        return 0
    try:
        ended = _wait_for_end(client, started["instance_id"], timeout, _StepReporter(context))
    except KeyboardInterrupt:
        output.print_stderr(f"interrupted; instance {started['instance_id']} continues")
        raise
    except NotRunning as error:
        instance = started["instance_id"]
        raise NotRunning(f"{error.message}; instance {instance} had not finished") from error
    context.show({"job_id": started["job_id"], **ended}, _show_outcome)
    return 0 if ended["status"] in SUCCESSFUL and ended["tree_ended"] else 1


class _StepReporter:
    """Prints each state change of a job once, to stderr, on a terminal or with `-v`."""

    def __init__(self, context: CommandContext) -> None:
        self._enabled = context.verbose or sys.stderr.isatty()
        self._shows_switches = context.verbose
        self._reported: set[tuple[str, str, int]] = set()

    def __call__(self, found: Json) -> None:
        for job in found["jobs"] if self._enabled else ():
            if is_plain_switch(job) and not self._shows_switches:
                continue
            change = (job["job_id"], job["status"], job["attempt"])
            is_new = change not in self._reported
            if is_new and (job["status"] != "queued" or job["next_retry_at"]):
                self._reported.add(change)
                output.print_stderr(_describe_step(job))


def _describe_step(job: Json) -> str:
    step = f"{job['branch']} {job['step']}" if job["branch"] else job["step"]
    what = f"{step}: {job['plugin']}.{job['command']}"
    if job["next_retry_at"]:
        when = output.format_time(job["next_retry_at"])
        return f"{what} failed ({job['last_error']}); attempt {job['attempt']} at {when}"
    if job["status"] not in ENDED:
        return f"{what} {job['status']}"
    error = f": {job['last_error']}" if job["last_error"] else ""
    return f"{what} {job['status']}{_took(job['started_at'], job['completed_at'])}{error}"


def _took(start: str | None, end: str | None) -> str:
    from ductile.clock import from_text

    if start is None or end is None:
        return ""
    return f" in {output.format_duration((from_text(end) - from_text(start)).total_seconds())}"


def _wait_for_end(
    client: GatewayClient, instance_id: str, timeout: float, on_change: Callable[[Json], None]
) -> Json:
    """Return the instance once it and all that follows from it have ended, or after the timeout."""
    deadline, seen = time.monotonic() + timeout, 0
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        wait = min(left, MAX_WAIT) or None
        found = client.get(path_to("pipeline-instance", instance_id), wait=wait, seen=seen)
        on_change(found)
        if found["tree_ended"] or not left:
            return found
        seen = sum(job["status"] in ENDED for job in found["jobs"])


def _show_started(started: Json) -> None:
    if started["deduplicated"]:
        output.print_line(f"not started: job {started['job_id']} has the same dedupe key")
    elif started["status"] == "skipped":
        output.print_line(f"not started: {started['reason']}")
        output.print_line(f"job {started['job_id']}", fg="bright_black")
    else:
        output.print_line(f"started {started['pipeline']}, instance {started['instance_id']}")
        output.print_line(f"job {started['job_id']}", fg="bright_black")


def _show_outcome(ended: Json) -> None:
    name = click.style(output.escape(ended["pipeline"]), bold=True)
    took = _took(ended["created_at"], ended["ended_at"])
    click.echo(f"{name} {output.format_status(ended['status'])}{took}")
    if not ended["tree_ended"]:
        output.print_line("not finished yet; it continues without this command")
    if ended["reason"]:
        output.print_line(ended["reason"])
    for job in ended["jobs"]:
        if job["last_error"]:
            output.print_line(f"{job['step']}: {job['last_error']} (job {job['job_id']})")
    response = ended["result"]
    if isinstance(response, dict) and response.get("result") is not None:
        output.print_text(output.format_value(response["result"]))
    output.print_line(f"job {ended['job_id']}", fg="bright_black")
