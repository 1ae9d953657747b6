"""`ductile pipeline runs`, `cancel` and `retry`: what pipelines did, and what is left of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi, Json, path_to
from ductile.cli.command import CommandContext, explain_unloaded, read, write
from ductile.cli.explain import Row, fold_run
from ductile.cli.options import MIN_ID_LENGTH, limit_option, parse_since
from ductile.core.values.suggest import did_you_mean
from ductile.errors import DuctileError, NotFound, UsageError
from ductile.model import RunStatus

RECENT = 1000
"""Runs among which a shortened id is looked up."""
MAX_REASON = 200
_STEP_AND_JOB = re.compile(r"^step \S+ ended as \w+ \(job [^)]*\): ")
"""The beginning of a stored reason, without which the list shows it."""
_RUN = click.argument("typed_id", metavar="RUN")


@read("runs")
@click.argument("which", metavar="[PIPELINE|RUN]", required=False)
@click.option(
    "--status", type=click.Choice([s.value for s in RunStatus]), help="Show only these runs."
)
@click.option(
    "--since",
    type=parse_since,
    metavar="TIME",
    help="Show runs that started since then (1h, or ISO 8601).",
)
@click.option(
    "--until", type=parse_since, metavar="TIME", help="Show runs that started before then."
)
@limit_option()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def runs(
    context: CommandContext,
    which: str | None,
    status: str | None,
    since: str | None,
    until: str | None,
    limit: int,
    before: str | None,
) -> None:
    """List pipeline runs, newest first, or show one.

    A run is shown with its steps: their status, why a step did not run, and the end of the log of
    a step that failed; with -v, also inputs and outputs.
    """
    filters = {"status": status, "since": since, "until": until, "limit": limit, "before": before}
    with context.target.open_reader() as api:
        pipelines = [row["name"] for row in api.get("/pipelines")["pipelines"]] if which else []
        is_list = which is None or which in pipelines
        if which is None or is_list:
            found = api.get("/pipeline-runs", pipeline=which, **filters)
        else:
            with explain_unloaded(context, which):
                found = find_run(api, which, pipelines)
    context.show(found, _show_list if is_list else lambda run: _show_run(context, run))


@write("cancel")
@_RUN
def cancel(context: CommandContext, typed_id: str) -> None:
    """End every queued and running job of a run."""
    context.show(_act(context, typed_id, "cancel"), lambda done: _show_action(done, "cancelled"))


@write("retry")
@_RUN
def retry(context: CommandContext, typed_id: str) -> None:
    """Queue the failed jobs of a run again."""
    context.show(_act(context, typed_id, "retry"), lambda done: _show_action(done, "queued again"))


def _act(context: CommandContext, typed_id: str, action: str) -> Json:
    with context.open_api() as api:
        run_id = resolve_run_id(api, typed_id)
        return context.post_to(api, path_to("pipeline-runs", run_id, action))


def find_run(api: GatewayApi, typed: str, pipelines: Iterable[str]) -> Json:
    """Return a run; raise `NotFound`, with the pipeline that is probably meant."""
    try:
        return api.get(path_to("pipeline-runs", resolve_run_id(api, typed)))
    except DuctileError as error:
        if error.code != NotFound.code:
            raise
        raise NotFound(f"{error}{did_you_mean(typed, pipelines)}") from None


def resolve_run_id(api: GatewayApi, typed_id: str) -> str:
    """Return the whole id of a run, of which the start or the end may have been typed."""
    typed_id = typed_id.removeprefix("…")
    recent = [run["instance_id"] for run in api.get("/pipeline-runs", limit=RECENT)["runs"]]
    known = [id for id in recent if id.startswith(typed_id) or id.endswith(typed_id)]
    if typed_id in known or not known:
        return typed_id
    if len(typed_id) < MIN_ID_LENGTH:
        raise NotFound(
            f"there is no pipeline run {typed_id}; "
            f"a shortened id needs at least {MIN_ID_LENGTH} characters"
        )
    if len(known) > 1:
        raise UsageError(f"the id {typed_id} matches several runs: {', '.join(known[:3])}")
    return str(known[0])


def _show_list(page: Json) -> None:
    output.print_table(
        page["runs"],
        {
            "run": "instance_id",
            "pipeline": "pipeline",
            "status": "status",
            "trigger": "trigger",
            "started": output.time_of("started_at"),
            "took": _took,
            "why": _explain_briefly,
        },
        empty="no pipeline runs",
    )
    if page["cursor"]:
        output.print_stderr(f"earlier runs: --before {page['cursor']}")


def _explain_briefly(run: Json) -> str | None:
    """The failed step and its error, or what the run waits for; the run itself shows all of it."""
    reason = run["reason"]
    if reason and run["failed_step"]:
        name = run["failed_step"].rpartition(".")[2]
        reason = f"{name}: {_STEP_AND_JOB.sub('', reason)}"
    return _clip_reason(reason)


def _clip_reason(reason: str | None) -> str | None:
    return output.clip_middle(output.format_times(reason), MAX_REASON) if reason else None


def _took(run: Json) -> str | None:
    duration = run["duration_ms"]
    return None if duration is None else output.format_duration(duration / 1000)


def _show_run(context: CommandContext, run: Json) -> None:
    name = click.style(output.escape(run["pipeline"]), bold=True)
    took = f" in {_took(run)}" if run["duration_ms"] is not None else ""
    click.echo(f"{name} {output.format_status(run['status'])}{took}")
    for label, value in _facts(run):
        output.print_line(f"{label + ':':<9} {value}")
    steps = run["steps"] if context.verbose else fold_run(run["steps"])
    output.print_table(
        steps,
        {
            "step": "step",
            "status": "status",
            "attempt": "attempt",
            "started": lambda step: (
                output.format_time(step["started_at"]) if step["started_at"] else None
            ),
            "job": "job_id",
            "reason": lambda step: _clip_reason(step["reason"]),
        },
        empty="no steps",
    )
    if run["steps_left_out"]:
        output.print_stderr("further steps are not shown")
    for step in steps:
        _show_step_details(context, step)


def _facts(run: Json) -> Iterator[tuple[str, str]]:
    yield "run", run["instance_id"]
    yield "started", f"{output.format_time(run['started_at'])} by {run['trigger'] or 'no job'}"
    if run["parent_job_id"]:
        yield "because", f"of an event of job {run['parent_job_id']}"
    if run["reason"]:
        yield "reason", output.format_times(run["reason"])


def _show_step_details(context: CommandContext, step: Row) -> None:
    if step["status"] == "waiting" and step["job_id"]:
        # Also in the table, which has no room for the command that decides.
        output.print_line(f"{step['step']}: {output.format_times(step['reason'])}", fg="yellow")
    if step["log_tail"] and (step["reason"] or context.verbose):
        output.print_section(f"{step['step']}: end of the log", step["log_tail"].rstrip())
    if context.verbose and step["job_id"]:
        for title, value in (("input", step["payload"]), ("output", step["result"])):
            output.print_section(f"{step['step']}: {title}", output.format_value(value))


def _show_action(done: Json, what: str) -> None:
    jobs = output.format_count(len(done["job_ids"]), "job")
    would = "would be " if done.get("dry_run") else ""
    output.print_line(f"{jobs} of run {done['instance_id']} {would}{what}")
