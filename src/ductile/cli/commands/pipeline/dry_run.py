"""`ductile pipeline dry-run`: what a pipeline would run, or one step in a sandbox."""

from __future__ import annotations

from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Json
from ductile.cli.command import CommandContext, compile_config, read
from ductile.cli.display import print_routing
from ductile.cli.explain import explain_steps
from ductile.cli.options import read_json, resolve_job_id
from ductile.errors import UsageError

PAYLOAD = click.option("--payload", metavar="JSON|@FILE|-", help="Initial payload.")


@read("dry-run")
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
        context.show(plan_start(context, which, given), lambda plan: show_plan(context, plan))
        return 0
    from ductile.cli.errors import sigterm_as_interrupt
    from ductile.cli.in_process import InProcessClient, open_services
    from ductile.operations.dry_run.step import step as run_step

    with sigterm_as_interrupt(), open_services(context.target.redacting) as services:
        chosen = None if job_id is None else resolve_job_id(InProcessClient(services), job_id)
        done = run_step(services, pipeline, path, chosen)
    context.show(done, lambda done: _show_step_run(context, done))
    return 0 if done.get("status", "succeeded") == "succeeded" and "fails" not in done else 1


def plan_start(context: CommandContext, name: str, given: Any) -> Json:
    from ductile.clock import SystemClock
    from ductile.operations.dry_run.pipeline import plan

    payload = {} if given is None else given
    return plan(compile_config(context.target.loaded), name, payload, SystemClock().now())


def show_plan(context: CommandContext, plan: Json) -> None:
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
        context.note_value(f"{where}: baggage adds {path} =", value)


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
    context.note_value("request:", done["request"])
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
