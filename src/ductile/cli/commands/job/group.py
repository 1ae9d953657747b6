"""`ductile job`: list, inspect, retry, acknowledge, cancel and replay jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi, Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.commands.job.bulk import ACKNOWLEDGED, bulk_options, has_filters, run_bulk
from ductile.cli.commands.job.logs import logs
from ductile.cli.display import (
    Row,
    is_refusal,
    job_note,
    print_attempt_output,
    print_jobs,
    print_reload_hint,
)
from ductile.cli.explain import explain_jobs, explain_steps, fold_graph, hide_switches
from ductile.cli.options import (
    PIPELINE,
    PLUGIN,
    STATUS,
    check_pipeline,
    check_plugin,
    limit_option,
    parse_since,
    read_json,
    resolve_job_id,
)
from ductile.errors import UsageError

job = Noun(
    "job",
    "List, inspect, retry, acknowledge, cancel and replay jobs.",
    actions={
        "bundle": "commands.job.bundle:bundle",
        "rerun": "commands.job.bundle:rerun",
    },
)
job.add_command(logs)

CANCEL_TIMEOUT = 15.0
"""Seconds to wait for the end of a cancelled job: more than its grace period."""
OMITTED_PARTS = ("last_error", "attempts", "baggage_added")
"""Parts of a job in the graph that a response can omit for their size."""
ID = click.argument("typed_id", metavar="ID")
ID_OR_FILTERS = click.argument("typed_id", metavar="[ID]", required=False)


def _post(context: CommandContext, typed_id: str, verb: str, body: Row | None = None) -> Json:
    with context.open_api() as api:
        return context.post_to(api, path_to("job", resolve_job_id(api, typed_id), verb), body)


@job.read("list")
@click.option("--status", type=STATUS, help="Show only jobs in this state.")
@click.option("--plugin", type=PLUGIN, help="Show only jobs of this plugin.")
@click.option("--pipeline", type=PIPELINE, help="Show only steps of this pipeline.")
@click.option("--command", help="Show only jobs of this command.")
@click.option(
    "--since", metavar="T", type=parse_since, help="Show only jobs created since T (1h, a time)."
)
@click.option(
    "--until", metavar="T", type=parse_since, help="Show only jobs created before T (1h, a time)."
)
@ACKNOWLEDGED
@limit_option()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def listing(context: CommandContext, **filters: Any) -> None:
    """List jobs, newest first."""
    with context.target.open_reader() as api:
        page = api.get("/jobs", **filters)
        if not page["jobs"]:
            check_plugin(api, filters["plugin"])
            check_pipeline(api, filters["pipeline"])
    switches = filters["plugin"] is not None
    context.show(page, lambda page: _show_page(page, switches=switches))


def _show_page(page: Row, *, switches: bool) -> None:
    print_jobs(page["jobs"] if switches else hide_switches(page["jobs"]), empty="no jobs")
    if page.get("cursor"):
        output.print_stderr(f"more rows: --before {page['cursor']}")


@job.read("inspect")
@ID
def inspect(context: CommandContext, typed_id: str) -> None:
    """Show one job and all jobs of the same graph.

    The job is shown with its payload, attempts, state changes and result; the jobs that led to
    it or followed from it with their step, timings, attempts, errors and added baggage. With -v,
    what led to each job is explained, and the conditions of steps are shown as jobs.

    Every command accepts a shortened ID: at least six characters of its start or of its end that
    match one job only. The end differs also between jobs of the same run.
    """
    with context.target.open_reader() as api:
        job_id = resolve_job_id(api, typed_id)
        found = api.get(path_to("job", job_id))
        found["graph"] = api.get(path_to("job", job_id, "tree"), flat="true")["jobs"]
        if context.verbose:
            for reason in api.get(path_to("job", job_id, "why"))["why"]:
                context.note(reason)
            explain_jobs(context.note, found["graph"])
    context.show(found, lambda found: _show_job(found, switches=context.verbose))


def _show_job(found: Row, *, switches: bool) -> None:
    output.print_line(f"{found['plugin']} {found['command']}", bold=True)
    click.echo(
        f"{output.format_status(found['status'])}  {output.escape(job_note(found))}".rstrip()
    )
    facts = {
        "job": found["job_id"],
        "node": found.get("node"),
        "attempt": f"{found['attempt']} of {found.get('max_attempts', '?')}",
        "submitted by": found["submitted_by"],
        "submitter": found.get("submitter"),
        "created": output.format_time(found["created_at"]),
        "started": output.format_time(found.get("started_at")),
        "completed": output.format_time(found.get("completed_at")),
        "dedupe key": _dedupe(found),
        "parent": found.get("parent_job_id"),
        "source event": found.get("source_event_id"),
        "acknowledged": _acknowledged(found),
        "trace": found.get("trace_id"),
    }
    for name, fact in facts.items():
        if fact not in (None, "-"):
            output.print_line(f"{name + ':':<14} {fact}")
    output.print_section("payload", output.format_value(found.get("payload")))
    if found.get("with"):
        _show_with(found["with"])
    if left := found.get("attempts_left_out"):
        output.print_stderr(
            f"earlier attempts not shown: {left}; run: ductile job logs {found['job_id']}"
        )
    for attempt in found["attempts"]:
        _show_attempt(attempt)
    if left := found.get("transitions_left_out"):
        output.print_stderr(f"earlier state changes not shown: {left}")
    for change in found["transitions"]:
        why = f"  {change['reason']}" if change["reason"] else ""
        states = f"{change['from_status']} -> {change['to_status']}"
        output.print_line(f"{output.format_time(change['created_at'])}  {states}{why}")
    graph = found["graph"] if switches else fold_graph(found["graph"], found["job_id"])
    _show_graph(graph, found["job_id"])


def _acknowledged(found: Row) -> str | None:
    at = found.get("acknowledged_at")
    return f"{output.format_time(at)} by {found['acknowledged_by']}" if at else None


def _dedupe(found: Row) -> str | None:
    """The dedupe key, how long it is remembered, and how many duplicates were dropped."""
    if found.get("dedupe_key") is None:
        return None
    ttl = found.get("dedupe_ttl")
    kept = "" if ttl is None else f", remembered for {output.format_duration(ttl)}"
    dropped = found.get("duplicates_dropped") or 0
    return f"{found['dedupe_key']}{kept}; duplicates dropped: {dropped}"


def _show_with(found: Row) -> None:
    """What `with` sets in the payload of the step."""
    name = "with" if found["exact"] else "with (by the current configuration)"
    output.print_section(name, found["fails"] or output.format_value(found["values"]))


def _show_graph(nodes: list[Row], shown_id: str) -> None:
    click.echo(click.style("graph", bold=True))
    for node in nodes:
        indent = "  " * (node["depth"] + 1)
        is_shown_job = node["job_id"] == shown_id
        words = [
            click.style(output.escape(_title(node)), bold=is_shown_job or None),
            output.format_status(node["status"]),
            output.escape(f"{_timing(node)}  {node['job_id']}"),
        ]
        click.echo(f"{'*' if is_shown_job else ' '}{indent}{'  '.join(words)}")
        for name, fact in _details(node):
            output.print_line(f" {indent}    {name}: {fact}")
    if nodes and nodes[0].get("more"):
        output.print_stderr("the graph may contain more jobs than these")


def _title(node: Row) -> str:
    what = f"{node['plugin']} {node['command']}"
    if not node.get("step"):
        return what
    branch = f" [{node['branch']}]" if node["branch"] else ""
    join = " (join)" if node["join_of"] else ""
    return f"{node['step']}{branch}{join}: {what}"


def _timing(node: Row) -> str:
    milliseconds, attempts = node["duration_ms"], len(node["attempts"])
    took = "" if milliseconds is None else f"in {output.format_duration(milliseconds / 1000)}"
    return f"{took}, {attempts} attempts" if attempts > 1 else took


def _details(node: Row) -> Iterator[tuple[str, str]]:
    if node["last_error"]:
        yield "error", node["last_error"]
    if node.get("replay_of"):
        yield "replays", node["replay_of"]
    for key, value in (node.get("baggage_added") or {}).items():
        yield f"baggage {key}", " ".join(output.format_value(value).split())
    left = [name for name in node.get("left_out", ()) if name in OMITTED_PARTS]
    if left:
        yield "not shown", f"{', '.join(left)}; run: ductile job inspect {node['job_id']}"


@job.read("why")
@ID
def why(context: CommandContext, typed_id: str) -> None:
    """Explain why a job ran, waits, was skipped or had no effect."""
    with context.target.open_reader() as api:
        found = api.get(path_to("job", resolve_job_id(api, typed_id), "why"))
    context.show(found, lambda found: _show_why(context, found))
    if any(map(is_refusal, found["why"])):
        print_reload_hint(api)


def _show_why(context: CommandContext, found: Row) -> None:
    click.echo(f"job {output.escape(found['job_id'])} is {output.format_status(found['status'])}")
    for reason in found["why"]:
        output.print_line(f"  {reason}")
    if found["run"]:
        output.print_line(f"run: {context.repeat_options(found['run'])}")


@job.write("retry")
@ID_OR_FILTERS
@bulk_options
def retry(context: CommandContext, typed_id: str | None, **filters: Any) -> int:
    """Queue a failed or dead job again, or end its backoff.

    The job gets as many attempts as its plugin's configuration allows. A queued job that waits for
    its next attempt runs now, and keeps its number of attempts. With filters instead of ID, all
    failed and dead jobs that match are queued again, the oldest first; --dry-run lists them. Jobs
    that were acknowledged or cancelled are left out, unless --acknowledged asks for them.
    """
    if has_filters(typed_id, filters):
        return run_bulk(context, "retry", filters)
    context.show(_post(context, str(typed_id), "retry"), _show_retry)
    return 0


def _show_retry(result: Row) -> None:
    if result.get("dry_run"):
        waits = result["status"] == "queued"
        number = result["attempt"] + (not waits)
        output.print_line(
            f"would retry job {result['job_id']} ({result['status']}) as attempt {number}"
        )
    else:
        tries = f"attempt {result['attempt']} of {result['max_attempts']}"
        output.print_line(f"job {result['job_id']} is {result['status']}, {tries}")


@job.write("acknowledge")
@ID_OR_FILTERS
@bulk_options
def acknowledge(context: CommandContext, typed_id: str | None, **filters: Any) -> int:
    """Record that failed or dead jobs need nothing.

    They stay as they are, and no longer appear on the home page of the dashboard, in `status` and
    in `doctor`. A retry ends it, and a replay acknowledges the old job. With filters instead of ID,
    all failed and dead jobs that match are acknowledged; --dry-run lists them.
    """
    if has_filters(typed_id, filters):
        return run_bulk(context, "acknowledge", filters)
    context.show(_post(context, str(typed_id), "acknowledge"), _show_acknowledge)
    return 0


def _show_acknowledge(result: Row) -> None:
    verb = "would acknowledge" if result.get("dry_run") else "acknowledged"
    output.print_line(f"{verb} job {result['job_id']} ({result['status']})")


@job.write("cancel")
@ID_OR_FILTERS
@click.option("--force", is_flag=True, help="End a job whose node does not answer.")
@bulk_options
def cancel(context: CommandContext, typed_id: str | None, force: bool, **filters: Any) -> int:
    """Cancel a queued or running job.

    The processes of a running job are killed. Exit 1 if the job ended otherwise. With filters
    instead of ID, all queued and running jobs that match are cancelled; --dry-run lists them.
    """
    if has_filters(typed_id, filters):
        if force:
            raise UsageError("--force ends one job; give its ID")
        return run_bulk(context, "cancel", filters)
    with context.open_api() as api:
        job_id = resolve_job_id(api, str(typed_id))
        body = {"force": True} if force else None
        result = context.post_to(api, path_to("job", job_id, "cancel"), body)
        if not context.dry_run:
            ended = api.get(path_to("job", job_id), wait=CANCEL_TIMEOUT)
            result |= {"status": ended["status"], "cancelled": ended["status"] == "dead"}
    context.show(result, _show_cancel)
    return 0 if context.dry_run or result["cancelled"] else 1


def _show_cancel(result: Row) -> None:
    if result.get("dry_run"):
        kill = " and kill its processes" if result["was"] == "running" else ""
        output.print_line(f"would cancel job {result['job_id']} ({result['was']}){kill}")
    elif result["cancelled"]:
        output.print_line(f"cancelled job {result['job_id']}: it is dead (was {result['was']})")
    else:
        output.print_line(
            f"job {result['job_id']} was not cancelled: it is {result['status']}", fg="yellow"
        )


@job.write("replay")
@ID
@click.option("--step", metavar="S", help="Replay the job of this step in the same graph.")
@click.option("--payload", metavar="JSON|@FILE|-", help="Use this payload instead.")
def replay(context: CommandContext, typed_id: str, step: str | None, payload: str | None) -> None:
    """Create a new job from an old job's input.

    The new job has the payload, context and workspace of the old one. The pipeline steps that
    follow run as well; a split that contained the old job is not joined again.
    --payload replaces the payload; for a handle job, that of its event.
    """
    body: dict[str, Any] = {} if step is None else {"step": step}
    if payload is not None:
        body["payload"] = read_json(payload)
    with context.open_api() as api:
        job_id = resolve_job_id(api, typed_id)
        result = context.post_to(api, path_to("job", job_id, "replay"), body)
        if context.verbose:
            _explain_replay(context, api, result["replay_of"], "payload" in body)
    context.show(result, _show_replay)


def _explain_replay(context: CommandContext, api: GatewayApi, job_id: str, changed: bool) -> None:
    """Note the input of a replay, and the steps that would follow."""
    found = api.get(path_to("job", job_id))
    context.note(f"runs {found['plugin']}.{found['command']} as job {job_id} did")
    if changed:
        context.note("payload: the given one")
    else:
        context.note_value("payload:", found.get("payload"))
    context.note(f"context: {found.get('entered_context_id') or 'none'}, as before that job")
    if not found.get("pipeline"):
        context.note("it is not a step of a pipeline; routes decide about its events")
        return
    steps = api.get(path_to("pipeline", found["pipeline"]))["steps"]
    own = [step for step in steps if step["step"] == found["step_path"]]
    explain_steps(context.note, own)
    if not own:
        context.note(f"pipeline {found['pipeline']} no longer has the step {found['step_path']}")


def _show_replay(result: Row) -> None:
    if result.get("dry_run"):
        output.print_line(f"would replay job {result['replay_of']} as a new job")
    else:
        output.print_line(f"queued job {result['job_id']}, a replay of {result['replay_of']}")


def _show_attempt(attempt: Row) -> None:
    took = output.format_duration((attempt["duration_ms"] or 0) / 1000)
    title = click.style(f"attempt {attempt['attempt']}", bold=True)
    node = f" on {output.escape(attempt['node'])}" if attempt["node"] else ""
    click.echo(f"{title}  {output.format_status(attempt['status'])} in {took}{node}")
    print_attempt_output(attempt)
    if attempt["result"] is not None:
        output.print_section("response", output.format_value(attempt["result"]))
