"""`ductile job logs` and `ductile logs`: the output of attempts, and the gateway's notices."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import GatewayApi, GatewayClient, Json, path_to
from ductile.cli.command import CommandContext, read
from ductile.cli.display import Row, format_log_line, print_attempt_output
from ductile.cli.options import (
    PLUGIN,
    PRODUCER,
    STATUS,
    check_plugin,
    limit_option,
    parse_since,
    resolve_job_id,
)
from ductile.cli.stream import follow_stream
from ductile.core.values.terminal import escape_controls, escape_json
from ductile.errors import DuctileError, NotFound, NotRunning, UsageError
from ductile.model import JobStatus

POLL_INTERVAL = 0.25
NOTICES_PER_JOB = 4
"""Most jobs have three notices (queued, started, ended); a few have more."""
ATTEMPT_ENDS = frozenset({"job.retrying", "job.succeeded", "job.failed", "job.dead", "job.skipped"})


def _log_options(command: Any) -> Any:
    for option in (
        click.option("--before", metavar="CURSOR", help="Continue from this cursor."),
        limit_option(),
        click.option(
            "--since",
            type=parse_since,
            metavar="TIME",
            help="Show only attempts that ended since then (1h, or ISO 8601).",
        ),
        click.option("--status", type=STATUS, help="Show only attempts in this state."),
    ):
        command = option(command)
    return command


@read("logs")
@click.argument("typed_id", metavar="[ID]", required=False)
@click.option("--plugin", type=PLUGIN, help="Show only attempts of this plugin.")
@click.option("--command", help="Show only attempts of this command.")
@click.option("--submitted-by", type=PRODUCER, help="Show only jobs from this producer.")
@click.option("--from", type=parse_since, metavar="TIME", help="Same as --since.")
@click.option(
    "--to", type=parse_since, metavar="TIME", help="Show only attempts that ended before then."
)
@click.option("--query", metavar="TEXT", help="Search errors, stderr and responses for this text.")
@click.option("--include-result", is_flag=True, help="Show responses too.")
@click.option("-f", "--follow", is_flag=True, help="Print a job's log as it is written.")
@_log_options
def logs(
    context: CommandContext,
    typed_id: str | None,
    include_result: bool,
    follow: bool,
    **filters: Any,
) -> None:
    """Show the output of job attempts, newest last.

    With ID, the log of an attempt that is running is printed as it is written; with --follow, until
    the job ends.
    """
    if follow:
        _follow_job(context, typed_id)
        return
    results = "true" if include_result else None
    with context.target.open_reader() as api, _plugin_hint(api, typed_id):
        job_id = None if typed_id is None else resolve_job_id(api, typed_id)
        page = _fetch(api, job_id=job_id, include_result=results, **filters)
        job = None if job_id is None else api.get(path_to("job", job_id))
    is_filtered = any(value for name, value in filters.items() if name != "limit")
    is_live = job is not None and job["status"] == JobStatus.RUNNING
    client = context.target.client() if is_live and not is_filtered else None
    if client is None or job is None or context.as_json:
        context.show(page, _show_logs)
    else:
        _show_running(client, job, page)


def _show_running(client: GatewayClient, job: Json, page: Json) -> None:
    """Print the ended attempts of a job, then the log of the running one as it is written."""
    if page["logs"]:
        _show_logs(page)
    output.print_stderr(f"attempt {job['attempt']} is running")
    target = path_to("job", job["job_id"], "log", "stream")
    for name, data in follow_stream(client, target, f"{job['attempt']}-0"):
        _show_live(name, data)
        if name in ("attempt", "end"):
            return


def _follow_job(context: CommandContext, typed_id: str | None) -> None:
    if typed_id is None:
        raise UsageError("--follow requires a job id; for all jobs, run: ductile logs -f")
    client = context.require_gateway(
        "no gateway is running, so there is nothing to follow: ductile start"
    )
    with _plugin_hint(client, typed_id):
        job_id = resolve_job_id(client, typed_id)
    for name, data in follow_stream(client, path_to("job", job_id, "log", "stream")):
        if context.as_json:
            click.echo(escape_json(json.dumps({"event": name, **data})))
        else:
            _show_live(name, data)
        if name == "end":
            return


def _show_live(name: str, data: Json) -> None:
    """Print the log to stdout, and what is about it to stderr."""
    if name == "log":
        click.echo(escape_controls(data["text"]), nl=False)
    elif name == "attempt":
        for line in data["logs"]:
            output.print_text(format_log_line(line))
        output.print_stderr(f"attempt {data['attempt']} {data['status']}")
    elif name == "end":
        output.print_stderr(f"job {data['status']}")


@contextmanager
def _plugin_hint(api: GatewayApi, typed_id: str | None) -> Iterator[None]:
    """Add a hint to the error for an unknown job id that is the name of a plugin."""
    try:
        yield
    except DuctileError as error:
        known = error.code == NotFound.code and api.get("/plugins")["plugins"]
        if not known or not any(row["name"] == typed_id for row in known):
            raise
        hint = f"for the attempts of a plugin, run: ductile job logs --plugin {typed_id}"
        raise NotFound(f"there is no job {typed_id}; {hint}", plugin=typed_id) from error


@read("logs")
@click.argument("plugin", type=PLUGIN, required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new entries until Ctrl-C.")
@_log_options
def plugin_logs(context: CommandContext, follow: bool, **filters: Any) -> None:
    """Show a plugin's attempts and notices, newest last.

    Notices report breakers, pipelines and unrouted events. Without PLUGIN, those of all plugins
    are shown.
    """
    with context.target.open_reader() as api:
        # Notices first: an attempt that ends between the two requests is shown twice, not lost.
        recent = api.get("/notices", last=filters["limit"] * NOTICES_PER_JOB)
        page = _fetch(api, **filters)
    page["notices"] = list(_select_notices(recent["notices"], page["logs"], filters))
    context.show(page, _show_logs)
    client = context.target.client() if follow else None
    if client is not None:
        _follow(context, client, recent["cursor"], filters["plugin"])
    elif follow:
        raise NotRunning(
            "no gateway is running, so there is nothing to follow; start one: ductile start"
        )


def _fetch(api: GatewayApi, **filters: Any) -> Json:
    """Return up to `limit` attempts, in as many requests as necessary."""
    logs: list[Json] = []
    cursor, limit = filters.pop("before"), filters.pop("limit")
    while True:
        page = api.get("/job-logs", **filters, before=cursor, limit=limit - len(logs))
        # `log_id` is the name of `id` in the Go program.
        logs += [{**row, "log_id": row["id"]} for row in page["logs"]]
        cursor = page["cursor"]
        if cursor is None or len(logs) >= limit:
            break
    if not logs:
        check_plugin(api, filters["plugin"])
    return {"logs": logs, "cursor": cursor}


def _select_notices(notices: list[Json], attempts: list[Json], filters: Row) -> Iterator[Json]:
    """Yield the notices of the same period that do not report these attempts."""
    if filters["status"] or filters["before"] or not attempts:
        return
    since = attempts[-1]["completed_at"]
    for notice in notices:
        has_no_attempt = notice["topic"] != "jobs" or notice["type"] == "job.deduplicated"
        is_recent = notice["created_at"] >= since
        if has_no_attempt and is_recent and _is_about(notice, filters["plugin"]):
            yield notice


def _is_about(notice: Json, plugin: str | None) -> bool:
    return plugin in (None, _payload_of(notice).get("plugin"))


def _payload_of(notice: Row) -> Row:
    """Return the payload as an object; an agent's payload may be any JSON."""
    payload = notice["payload"]
    return payload if isinstance(payload, dict) else {"payload": payload}


def _show_logs(page: Json) -> None:
    if page.get("cursor"):
        output.print_stderr(f"earlier entries: --before {page['cursor']}")
    entries = sorted([*reversed(page["logs"]), *page.get("notices", ())], key=_time_of)
    for entry in entries:
        (_show_notice if "topic" in entry else _show_attempt)(entry)
    if not entries:
        output.print_line("no attempts")


def _time_of(entry: Json) -> str:
    return str(entry["created_at"] if "topic" in entry else entry["completed_at"])


def _show_attempt(entry: Row) -> None:
    took = output.format_duration((entry["duration_ms"] or 0) / 1000)
    head = f"{output.format_time(entry['completed_at'])}  {entry['plugin']} {entry['command']}"
    tail = f"in {took}, attempt {entry['attempt']}, job {entry['job_id']}"
    click.echo(f"{output.escape(head)}  {output.format_status(entry['status'])}  {tail}")
    print_attempt_output(entry)
    if entry["result"] is not None:
        output.print_section("response", output.format_value(entry["result"]))


def _follow(
    context: CommandContext, client: GatewayClient, cursor: int, plugin: str | None
) -> None:
    while True:
        page = client.get("/notices", after=cursor)
        for notice in page["notices"]:
            if _is_about(notice, plugin):
                _show_new(context, client, notice)
        cursor = page["cursor"]
        if not page["notices"]:
            time.sleep(POLL_INTERVAL)


def _show_new(context: CommandContext, client: GatewayClient, notice: Json) -> None:
    """Show the end of an attempt as its log entry, and any other notice as it is."""
    attempts = list(_attempts(client, notice)) if notice["type"] in ATTEMPT_ENDS else []
    if context.as_json:
        for document in attempts or [notice]:
            output.print_json(document)
    elif attempts:
        for attempt in attempts:
            _show_attempt(attempt)
    else:
        _show_notice(notice)


def _show_notice(notice: Row) -> None:
    fields = {key: value for key, value in _payload_of(notice).items() if value is not None}
    words = " ".join(f"{key}={value}" for key, value in fields.items())
    output.print_line(f"{output.format_time(notice['created_at'])}  {notice['type']}  {words}")


def _attempts(client: GatewayClient, notice: Json) -> Iterator[Json]:
    number = _payload_of(notice).get("attempt")
    for entry in client.get("/job-logs", job_id=notice["job_id"])["logs"]:
        if entry["attempt"] in (number, 0):
            yield entry
