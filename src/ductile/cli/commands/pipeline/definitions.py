"""`ductile pipeline`: show, run and dry-run pipelines."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import MAX_WAIT, GatewayClient, Json, path_to
from ductile.cli.command import CommandContext, Noun, compile_config
from ductile.cli.commands.flow.pause import describe as describe_pause
from ductile.cli.display import print_routing
from ductile.cli.explain import (
    describe_action,
    describe_next,
    explain_steps,
    fold_steps,
    is_plain_switch,
)
from ductile.cli.options import (
    DEDUPE_TTL,
    DETACHED,
    PIPELINE,
    PRIORITY,
    TIMEOUT,
    read_json,
    resolve_job_id,
)
from ductile.core.jobs.state_machine import ENDED
from ductile.errors import ConfigError, DuctileError, NotFound, NotRunning, UsageError

pipeline = Noun("pipeline", "Show and run pipelines; manage their runs.")

PAYLOAD = click.option("--payload", metavar="JSON|@FILE|-", help="Initial payload.")
SUCCESSFUL = frozenset({"succeeded", "skipped"})


def is_terminal() -> bool:
    """Return whether a person reads the output."""
    return sys.stdout.isatty()


@pipeline.read("list")
def listing(context: CommandContext) -> None:
    """List pipelines with their triggers and last runs."""
    with context.target.open_reader() as api:
        page = api.get("/pipelines")
        context.warn_of_difference(api)
    context.show(page, _show_list)


def _show_list(page: Json) -> None:
    output.print_table(
        ("pipeline", "trigger", "mode", "steps", "last run", "outcome", "note"),
        (
            (
                row["name"],
                _trigger(row),
                row["execution_mode"],
                row["steps"],
                *_describe_last_run(row),
                _pause_note(row),
            )
            for row in page["pipelines"]
        ),
        empty="no pipelines; define one under `pipelines:` in the config",
    )


def _describe_last_run(row: Json) -> tuple[str | None, str | None]:
    run = row.get("last_run")
    return (output.format_time(run["started_at"]), run["status"]) if run else (None, None)


def _pause_note(row: Json) -> str | None:
    return describe_pause(row["paused"]) if row["paused"] else None


def _trigger(row: Json) -> str:
    from ductile.core.pipelines.diagram import describe_trigger

    cause = describe_trigger(row["on"], row["on_hook"])
    name = row["from_plugin"] or row["from_pipeline"]
    source = f" from {name}" if name else ""
    return f"{cause}{source}{', if ' + row['if'] if row['if'] else ''}"


@pipeline.read("show")
@click.argument("name", metavar="NAME", type=PIPELINE)
def show(context: CommandContext, name: str) -> None:
    """Show a pipeline's diagram, trigger, settings and steps."""
    context.show(_get(context, name), lambda found: _show_pipeline(context, found))


def _get(context: CommandContext, name: str) -> Json:
    with context.target.open_reader() as api:
        with explain_unloaded(context, name):
            found = api.get(path_to("pipeline", name))
        context.warn_of_difference(api)
        return found


@contextmanager
def explain_unloaded(context: CommandContext, name: str) -> Iterator[None]:
    """Raise what helps where the gateway does not find a pipeline that the files have."""
    try:
        yield
    except DuctileError as error:
        if error.code != NotFound.code or not _is_in_files(context, name):
            raise
        run = context.repeat_options("ductile system reload")
        raise NotFound(
            f"pipeline {name} is in the files, and the running gateway has not loaded it; "
            f"run: {run}"
        ) from None


def _is_in_files(context: CommandContext, name: str) -> bool:
    if context.api_url is not None:
        return False
    try:
        return name in compile_config(context.target.loaded).tx_config.router.pipelines
    except ConfigError:
        return False


def _show_pipeline(context: CommandContext, found: Json) -> None:
    output.print_line(found["drawing"].rstrip())
    facts = {
        "trigger": _trigger(found),
        "mode": found["execution_mode"],
        "timeout": output.format_duration(found["timeout"]) if found["timeout"] else None,
        "workspace": found["workspace"],
        "max depth": found["max_depth"] or "none",
        "paused": _pause_note(found),
    }
    for name, fact in facts.items():
        if fact is not None:
            output.print_line(f"{name + ':':<11} {fact}")
    output.print_table(
        ("step", "runs", "if", "next", "defined in"),
        (
            (step["step"], describe_action(step), step["if"], describe_next(step), step["source"])
            for step in fold_steps(found["steps"])
        ),
    )
    explain_steps(context.note, found["steps"])


@pipeline.read("visualize")
@click.argument("name", metavar="NAME", type=PIPELINE)
@click.option("--text", is_flag=True, help="Draw a tree of text, the default on a terminal.")
@click.option("--mermaid", is_flag=True, help="Print Mermaid, the default in a pipe.")
def visualize(context: CommandContext, name: str, text: bool, mermaid: bool) -> None:
    """Draw a pipeline, as a tree or as a Mermaid diagram."""
    if text and mermaid:
        raise UsageError("--text and --mermaid cannot be combined")
    found = _get(context, name)
    as_text = text or (is_terminal() and not mermaid and not context.as_json)
    drawing = found["drawing" if as_text else "mermaid"]
    explain_steps(context.note, found["steps"])
    context.show(
        {"pipeline": name, "drawing": drawing}, lambda _: output.print_line(drawing.rstrip())
    )


@pipeline.write("run")
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
        context.show(_plan(context, name, given), lambda plan: _show_plan(context, plan))
        return 0
    client = context.target.client()
    if client is None:
        raise NotRunning(
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
        output.print_line(output.format_value(response["result"]))
    output.print_line(f"job {ended['job_id']}", fg="bright_black")


@pipeline.read("dry-run")
@click.argument("name", metavar="PIPELINE|STEP")
@PAYLOAD
@click.option("--job", "job_id", metavar="ID", help="Run the step with the input of this job.")
@click.option("--step", metavar="S", hidden=True, help="Same as PIPELINE/STEP.")
def dry_run(
    context: CommandContext, name: str, payload: str | None, job_id: str | None, step: str | None
) -> int:
    """Show what a pipeline would run, or dry-run one step.

    A pipeline is shown with its first steps, their payload and context, and the result of its
    own `if` for such an event; a manual run does not evaluate it. With --payload, a step is
    shown in the same way, as if it were the first. With -v, the resolved steps, the merged
    baggage and the paths are shown as well.

    A step without --payload is executed in a sandbox. Its input is the payload and context of
    its newest job, or of the job in the graph of --job, with a copy of the files as they were
    before that job. Its response, state updates and events are shown and not committed; its
    other side effects are real. Name it PIPELINE/STEP if several pipelines have the step.
    """
    from ductile.operations.dry_run.pipeline import find

    which, given = name if step is None else f"{name}/{step}", read_json(payload)
    router = compile_config(context.target.loaded).tx_config.router
    pipeline, path = find(router, which)
    if job_id is not None and path is None:
        raise UsageError(f"--job requires a step: {pipeline.name}/STEP")
    if job_id is not None and payload is not None:
        raise UsageError("--job and --payload cannot be combined: a job has its own payload")
    if path is None or payload is not None:
        context.warn_of_unloaded_files()
        context.show(_plan(context, which, given), lambda plan: _show_plan(context, plan))
        return 0
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.cli.in_process import InProcessClient, open_services
    from ductile.operations.dry_run.step import step as run_step

    with sigterm_as_interrupt(), open_services(context.target.redacting) as services:
        chosen = None if job_id is None else resolve_job_id(InProcessClient(services), job_id)
        done = run_step(services, pipeline, path, chosen)
    context.show(done, lambda done: _show_step_run(context, done))
    return 0 if done.get("status", "succeeded") == "succeeded" and "fails" not in done else 1


def _plan(context: CommandContext, name: str, given: Any) -> Json:
    from ductile.clock import SystemClock
    from ductile.operations.dry_run.pipeline import plan

    payload = {} if given is None else given
    return plan(compile_config(context.target.loaded), name, payload, SystemClock().now())


def _show_plan(context: CommandContext, plan: Json) -> None:
    where = f" at {plan['step']}" if plan["step"] else ""
    output.print_line(
        f"{plan['pipeline']} would start{where} with an event {plan['event']}", bold=True
    )
    if plan["if"]:
        output.print_line(_describe_condition(plan["if"]))
    explain_steps(context.note, plan["resolution"])
    context.note(
        f"root context: {output.format_value(plan['context'])}; max depth {plan['max_depth']}"
    )
    for item in plan["first"]:
        _show_first_step(context, item)


def _describe_condition(result: Json) -> str:
    if "fails" in result:
        verdict = f"would fail: {result['fails']}; such an event would not start it"
    elif result["matched"]:
        verdict = "is true"
    else:
        verdict = (
            f"is false ({result['because']}): such an event would not start it; a manual run would"
        )
    return f"if {result['condition']} {verdict}"


def _show_first_step(context: CommandContext, item: Json) -> None:
    where = f"{item['branch']} {item['step']}" if item["branch"] else item["step"] or "route"
    if "fails" in item:
        output.print_line(f"{where}: would fail: {item['fails']}", fg="red")
    elif "if" in item:
        verdict = "true" if item["matched"] else "false"
        output.print_line(f"{where}: if {item['if']} is {verdict}: {item['because']}")
    elif "waits_for" in item:
        output.print_line(f"{where}: {item['waits_for']}")
    else:
        to = item.get("relays")
        what = f"relay {to} to {item['to']}" if to else f"{item['plugin']}.{item['command']}"
        output.print_line(f"{where}: {what}")
        output.print_section("  payload", output.format_value(item["payload"]))
        if "context" in item:
            output.print_section("  context", output.format_value(item["context"]))
    for path, value in (item.get("baggage_added") or {}).items():
        context.note(f"{where}: baggage adds {path} = {output.format_value(value)}")


def _show_step_run(context: CommandContext, done: Json) -> None:
    name = f"{done['pipeline']} {done['step']}"
    if "status" not in done:
        words = {
            key: done[key]
            for key in ("if", "matched", "because", "relays", "to", "waits_for", "fails")
            if key in done
        }
        output.print_line(f"{name}: " + ", ".join(f"{key} {value}" for key, value in words.items()))
        return
    title = click.style(output.escape(name), bold=True)
    click.echo(f"{title} {output.format_status(done['status'])}  (nothing was committed)")
    if done.get("error"):
        output.print_section("error", done["error"])
    if "response" not in done:
        return
    box = done["sandbox"]
    if box["gone"]:
        output.print_line(box["gone"], fg="yellow")
    context.note(f"sandbox {box['directory']}, cloned from {box['cloned_from'] or 'nothing'}")
    context.note(f"request: {output.format_value(done['request'])}")
    for heading in ("response", "state_updates", "baggage_added", "stdout", "stderr"):
        if done[heading]:
            output.print_section(heading.replace("_", " "), output.format_value(done[heading]))
    for change, names in box["files"].items():
        if names:
            output.print_line(f"files {change}: {', '.join(names)}")
    _show_following(done)


def _show_following(done: Json) -> None:
    for event in done["events"]:
        output.print_line(f"event {event.get('type')}")
    print_routing(done)
    if done["status"] == "succeeded" and not done["goes_to"]:
        output.print_line("no job would follow")
