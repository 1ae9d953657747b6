"""What attempts said, and what the gateway announces: `job logs`, `logs [plugin] [-f]`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Client, Door, Json, path_to
from ductile.cli.command import CommandContext, read
from ductile.cli.commands.job import job, meant, show_words
from ductile.cli.options import PLUGIN, PRODUCER, STATUS, check_plugin, limited, since
from ductile.errors import DuctileError, NotFound, NotRunning

PAUSE = 0.25
NOTICES_A_JOB = 4
"""Most jobs are announced as queued, started and ended; some have more to tell."""
ATTEMPT_ENDS = frozenset({"job.retrying", "job.succeeded", "job.failed", "job.dead", "job.skipped"})


def _log_options(command: Any) -> Any:
    for option in (
        click.option("--before", metavar="CURSOR", help="Continue from this cursor."),
        limited(),
        click.option(
            "--since",
            type=since,
            metavar="TIME",
            help="Show only attempts that ended since then (1h, or ISO 8601).",
        ),
        click.option("--status", type=STATUS, help="Show only attempts in this state."),
    ):
        command = option(command)
    return command


@job.read("logs")
@click.argument("typed", metavar="[ID]", required=False)
@click.option("--plugin", type=PLUGIN, help="Show only attempts of this plugin.")
@click.option("--command", help="Show only attempts of this command.")
@click.option("--submitted-by", type=PRODUCER, help="Show only jobs from this producer.")
@click.option("--from", type=since, metavar="TIME", help="Same as --since.")
@click.option("--to", type=since, metavar="TIME", help="Show only attempts that ended before then.")
@click.option("--query", metavar="TEXT", help="Search errors, stderr and responses for this text.")
@click.option("--include-result", is_flag=True, help="Show responses too.")
@_log_options
def logs(call: CommandContext, typed: str | None, include_result: bool, **filters: Any) -> None:
    """Show the output of job attempts, newest last."""
    results = "true" if include_result else None
    with call.site.reading() as door, _hinting_at_plugin(door, typed):
        job_id = None if typed is None else meant(door, typed)
        page = _page(door, job_id=job_id, include_result=results, **filters)
        if job_id is not None and not page["logs"]:
            door.get(path_to("job", job_id))
    call.show(page, _show_logs)


@contextmanager
def _hinting_at_plugin(door: Door, typed: str | None) -> Iterator[None]:
    """Whoever names a plugin where a job's id belongs is told how to ask for its attempts."""
    try:
        yield
    except DuctileError as error:
        known = error.code == NotFound.code and door.get("/plugins")["plugins"]
        if not known or not any(row["name"] == typed for row in known):
            raise
        hint = f"for the attempts of a plugin, run: ductile job logs --plugin {typed}"
        raise NotFound(f"there is no job {typed}; {hint}", plugin=typed) from error


@read("logs")
@click.argument("plugin", type=PLUGIN, required=False)
@click.option("-f", "--follow", is_flag=True, help="Print new entries until Ctrl-C.")
@_log_options
def plugin_logs(call: CommandContext, follow: bool, **filters: Any) -> None:
    """Show a plugin's attempts and notices, newest last.

    Notices report breakers, pipelines and unrouted events. Without PLUGIN, those of all plugins
    are shown.
    """
    with call.site.reading() as door:
        # Asked first: what happens between the two is told twice, not lost.
        told = door.get("/notices", last=filters["limit"] * NOTICES_A_JOB)
        page = _page(door, **filters)
    page["notices"] = list(_beside(page["logs"], told["notices"], filters))
    call.show(page, _show_logs)
    client = call.site.client() if follow else None
    if client is not None:
        _follow(call, client, told["cursor"], filters["plugin"])
    elif follow:
        raise NotRunning(
            "no gateway is running, so there is nothing to follow; start one: ductile start"
        )


def _page(door: Door, **filters: Any) -> Json:
    """As many as are wanted, in as many answers as that takes."""
    logs: list[Json] = []
    cursor, limit = filters.pop("before"), filters.pop("limit")
    while True:
        page = door.get("/job-logs", **filters, before=cursor, limit=limit - len(logs))
        logs += page["logs"]
        cursor = page["cursor"]
        if cursor is None or len(logs) >= limit:
            break
    if not logs:
        check_plugin(door, filters["plugin"])
    return {"logs": logs, "cursor": cursor}


def _beside(
    attempts: list[Json], notices: list[Json], filters: Mapping[str, Any]
) -> Iterator[Json]:
    """What was announced while these attempts ended, and is not told by them."""
    if filters["status"] or filters["before"] or not attempts:
        return
    since = attempts[-1]["completed_at"]
    for notice in notices:
        by_itself = notice["topic"] != "jobs" or notice["type"] == "job.deduplicated"
        if by_itself and notice["created_at"] >= since and _of(notice, filters["plugin"]):
            yield notice


def _of(notice: Json, plugin: str | None) -> bool:
    return plugin in (None, _told(notice).get("plugin"))


def _told(notice: Mapping[str, Any]) -> Mapping[str, Any]:
    """What it says; an agent's own may be any JSON."""
    payload = notice["payload"]
    return payload if isinstance(payload, dict) else {"payload": payload}


def _show_logs(page: Json) -> None:
    if page.get("cursor"):
        output.aside(f"earlier entries: --before {page['cursor']}")
    told = sorted([*reversed(page["logs"]), *page.get("notices", ())], key=_moment)
    for item in told:
        (_show_notice if "topic" in item else _show_entry)(item)
    if not told:
        output.line("no attempts")


def _moment(item: Json) -> str:
    return str(item["created_at"] if "topic" in item else item["completed_at"])


def _show_entry(entry: Mapping[str, Any]) -> None:
    took = output.span((entry["duration_ms"] or 0) / 1000)
    head = f"{output.when(entry['completed_at'])}  {entry['plugin']} {entry['command']}"
    tail = f"in {took}, attempt {entry['attempt']}, job {entry['job_id']}"
    click.echo(f"{output.safe(head)}  {output.coloured(entry['status'])}  {tail}")
    show_words(entry)
    if entry["result"] is not None:
        output.section("response", output.value(entry["result"]))


def _follow(call: CommandContext, client: Client, cursor: int, plugin: str | None) -> None:
    while True:
        page = client.get("/notices", after=cursor)
        for notice in page["notices"]:
            if _of(notice, plugin):
                _tell(call, client, notice)
        cursor = page["cursor"]
        if not page["notices"]:
            time.sleep(PAUSE)


def _tell(call: CommandContext, client: Client, notice: Json) -> None:
    """An attempt's end as its log has it; anything else as it was announced."""
    attempts = list(_attempts(client, notice)) if notice["type"] in ATTEMPT_ENDS else []
    if call.as_json:
        for document in attempts or [notice]:
            output.document(document)
    elif attempts:
        for attempt in attempts:
            _show_entry(attempt)
    else:
        _show_notice(notice)


def _show_notice(notice: Mapping[str, Any]) -> None:
    about = {key: value for key, value in _told(notice).items() if value is not None}
    words = " ".join(f"{key}={value}" for key, value in about.items())
    output.line(f"{output.when(notice['created_at'])}  {notice['type']}  {words}")


def _attempts(client: Client, notice: Json) -> Iterator[Json]:
    number = _told(notice).get("attempt")
    for entry in client.get("/job-logs", job_id=notice["job_id"])["logs"]:
        if entry["attempt"] in (number, 0):
            yield entry
