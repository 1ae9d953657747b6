"""`ductile job`: what ran, how it ended, what it said."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ductile.cli import output
from ductile.cli.client import Door, Json, path_to
from ductile.cli.command import CommandContext, Noun
from ductile.cli.options import PLUGIN, STATUS, check_plugin, limited
from ductile.errors import NotFound, UsageError

job = Noun("job", "List, inspect, retry, cancel and replay jobs.")

Row = Mapping[str, Any]
CANCEL_WAIT = 15.0
"""How long a process that is told to end may take, until it is killed."""
SHORTEST_ID = 6
"""As few characters of an id may stand for all of it, where no other job's begins so."""
MATCHES = 5
RELOAD = "ductile system reload"
SHOWN = ("last_error", "attempts", "baggage_added")
"""What the graph tells of a job that an answer may have no room for."""
ID = click.argument("typed", metavar="ID")


def meant(door: Door, typed: str) -> str:
    """The id of the job that is typed, whole or its beginning.

    What begins none is handed on as it is: whoever is asked says that there is no such job.
    """
    known = door.get("/job-ids", begins=typed, limit=MATCHES + 1)["job_ids"]
    if typed in known or not known:
        return typed
    if len(typed) < SHORTEST_ID:
        least = f"a shortened id needs at least {SHORTEST_ID} characters"
        raise NotFound(f"there is no job {typed}; {least}")
    if len(known) > 1:
        first = known[:MATCHES]
        listed = ", ".join([*first, "..."] if len(known) > MATCHES else first)
        raise UsageError(f"the id {typed} matches several jobs: {listed}", jobs=first)
    return str(known[0])


def hint_at_reload(door: Door) -> None:
    """A gateway that runs does not look at a refused plugin again by itself."""
    if door.running:
        output.aside(f"after fixing a refused plugin, run: {RELOAD}")


def is_refused(reason: str | None) -> bool:
    """Whether a job waits for a plugin that is refused."""
    return reason is not None and " is refused: " in reason


def _act(call: CommandContext, typed: str, verb: str, body: Row | None = None) -> Json:
    with call.place() as door:
        return call.send(door, path_to("job", meant(door, typed), verb), body)


@job.read("list")
@click.option("--status", type=STATUS, help="Show only jobs in this state.")
@click.option("--plugin", type=PLUGIN, help="Show only jobs of this plugin.")
@click.option("--command", help="Show only jobs of this command.")
@limited()
@click.option("--before", metavar="CURSOR", help="Continue from this cursor.")
def listing(call: CommandContext, **filters: Any) -> None:
    """List jobs, newest first."""
    with call.site.reading() as door:
        page = door.get("/jobs", **filters)
        if not page["jobs"]:
            check_plugin(door, filters["plugin"])
    call.show(page, _show_page)


def _show_page(page: Row) -> None:
    show_jobs(page["jobs"], empty="no jobs")
    if page.get("cursor"):
        output.aside(f"more rows: --before {page['cursor']}")


def show_jobs(rows: list[Row], *, empty: str) -> None:
    output.table(
        ("job", "plugin", "command", "status", "attempt", "created", "note"),
        (
            (
                row["job_id"],
                row["plugin"],
                row["command"],
                row["status"],
                f"{row['attempt']}/{row['max_attempts']}",
                output.when(row["created_at"]),
                _note(row),
            )
            for row in rows
        ),
        empty=empty,
    )


def _note(row: Row) -> str:
    waits, retry = row.get("waits_for"), row.get("next_retry_at")
    if waits and retry:
        waits = waits.replace(retry, output.when(retry))
    return "; ".join(filter(None, (waits, row.get("last_error"))))


@job.read("inspect")
@ID
def inspect(call: CommandContext, typed: str) -> None:
    """Show one job and all jobs of the same graph.

    The job is shown with its payload, attempts, state changes and result; the jobs that led to
    it or followed from it with their step, timings, attempts, errors and added baggage.

    Every command accepts a shortened ID: at least six characters that match one job only.
    """
    with call.site.reading() as door:
        job_id = meant(door, typed)
        found = door.get(path_to("job", job_id))
        found["graph"] = door.get(path_to("job", job_id, "tree"), flat="true")["jobs"]
    call.show(found, _show_job)


def _show_job(found: Row) -> None:
    output.line(f"{found['plugin']} {found['command']}", bold=True)
    click.echo(f"{output.coloured(found['status'])}  {output.safe(_note(found))}".rstrip())
    facts = {
        "job": found["job_id"],
        "attempt": f"{found['attempt']} of {found.get('max_attempts', '?')}",
        "submitted by": found["submitted_by"],
        "created": output.when(found["created_at"]),
        "started": output.when(found.get("started_at")),
        "completed": output.when(found.get("completed_at")),
        "dedupe key": found.get("dedupe_key"),
        "parent": found.get("parent_job_id"),
        "source event": found.get("source_event_id"),
    }
    for name, fact in facts.items():
        if fact not in (None, "-"):
            output.line(f"{name + ':':<14} {fact}")
    output.section("payload", output.value(found.get("payload")))
    if left := found.get("attempts_left_out"):
        output.aside(f"earlier attempts not shown: {left}; run: ductile job logs {found['job_id']}")
    for attempt in found["attempts"]:
        _show_attempt(attempt)
    if left := found.get("transitions_left_out"):
        output.aside(f"earlier state changes not shown: {left}")
    for change in found["transitions"]:
        why = f"  {change['reason']}" if change["reason"] else ""
        states = f"{change['from_status']} -> {change['to_status']}"
        output.line(f"{output.when(change['created_at'])}  {states}{why}")
    _show_graph(found["graph"], found["job_id"])


def _show_graph(nodes: list[Row], asked: str) -> None:
    click.echo(click.style("graph", bold=True))
    for node in nodes:
        indent = "  " * (node["depth"] + 1)
        mark = "*" if node["job_id"] == asked else " "
        took = (
            "" if node["duration_ms"] is None else f"in {output.span(node['duration_ms'] / 1000)}"
        )
        words = [
            click.style(output.safe(_title(node)), bold=node["job_id"] == asked or None),
            output.coloured(node["status"]),
            output.safe(f"{took}{_tries(node)}  {node['job_id']}"),
        ]
        click.echo(f"{mark}{indent}{'  '.join(words)}")
        for name, fact in _details(node):
            output.line(f" {indent}    {name}: {fact}")
    if nodes and nodes[0].get("more"):
        output.aside("the graph may contain more jobs than these")


def _title(node: Row) -> str:
    what = f"{node['plugin']} {node['command']}"
    if not node.get("step"):
        return what
    branch = f" [{node['branch']}]" if node["branch"] else ""
    join = " (join)" if node["join_of"] else ""
    return f"{node['step']}{branch}{join}: {what}"


def _tries(node: Row) -> str:
    count = len(node["attempts"])
    return f", {count} attempts" if count > 1 else ""


def _details(node: Row) -> Iterator[tuple[str, str]]:
    if node["last_error"]:
        yield "error", node["last_error"]
    if node.get("replay_of"):
        yield "replays", node["replay_of"]
    for key, value in (node.get("baggage_added") or {}).items():
        yield f"baggage {key}", " ".join(output.value(value).split())
    left = [name for name in node.get("left_out", ()) if name in SHOWN]
    if left:
        yield "not shown", f"{', '.join(left)}; run: ductile job inspect {node['job_id']}"


@job.read("why")
@ID
def why(call: CommandContext, typed: str) -> None:
    """Explain why a job ran, waits, was skipped or had no effect."""
    with call.site.reading() as door:
        found = door.get(path_to("job", meant(door, typed), "why"))
    call.show(found, _show_why)
    if any(map(is_refused, found["why"])):
        hint_at_reload(door)


def _show_why(found: Row) -> None:
    click.echo(f"job {output.safe(found['job_id'])} is {output.coloured(found['status'])}")
    for reason in found["why"]:
        output.line(f"  {reason}")


@job.write("retry")
@ID
def retry(call: CommandContext, typed: str) -> None:
    """Queue a failed or dead job again.

    The job gets as many attempts as its plugin's configuration allows.
    """
    answer = _act(call, typed, "retry")
    call.show(answer, _show_retry)


def _show_retry(answer: Row) -> None:
    if answer.get("dry_run"):
        number = answer["attempt"] + 1
        output.line(f"would retry job {answer['job_id']} ({answer['status']}) as attempt {number}")
    else:
        tries = f"attempt {answer['attempt']} of {answer['max_attempts']}"
        output.line(f"job {answer['job_id']} is {answer['status']}, {tries}")


@job.write("cancel")
@ID
def cancel(call: CommandContext, typed: str) -> int:
    """Cancel a queued or running job.

    The processes of a running job are killed. Exit 1 if the job ended otherwise.
    """
    with call.place() as place:
        job_id = meant(place, typed)
        answer = call.send(place, path_to("job", job_id, "cancel"))
        if not call.dry_run:
            ended = place.get(path_to("job", job_id), wait=CANCEL_WAIT)
            answer |= {"status": ended["status"], "cancelled": ended["status"] == "dead"}
    call.show(answer, _show_cancel)
    return 0 if call.dry_run or answer["cancelled"] else 1


def _show_cancel(answer: Row) -> None:
    if answer.get("dry_run"):
        kill = " and kill its processes" if answer["was"] == "running" else ""
        output.line(f"would cancel job {answer['job_id']} ({answer['was']}){kill}")
    elif answer["cancelled"]:
        output.line(f"cancelled job {answer['job_id']}: it is dead (was {answer['was']})")
    else:
        output.line(
            f"job {answer['job_id']} was not cancelled: it is {answer['status']}", fg="yellow"
        )


@job.write("replay")
@ID
@click.option("--step", metavar="S", help="Replay the job of this step in the same graph.")
def replay(call: CommandContext, typed: str, step: str | None) -> None:
    """Create a new job from an old job's input.

    The new job has the payload, context and workspace of the old one. The pipeline steps that
    follow run as well; a split that contained the old job is not joined a second time.
    """
    answer = _act(call, typed, "replay", {"step": step} if step else None)
    call.show(answer, _show_replay)


def _show_replay(answer: Row) -> None:
    if answer.get("dry_run"):
        output.line(f"would replay job {answer['replay_of']} as a new job")
    else:
        output.line(f"queued job {answer['job_id']}, a replay of {answer['replay_of']}")


def _show_attempt(attempt: Row) -> None:
    took = output.span((attempt["duration_ms"] or 0) / 1000)
    title = click.style(f"attempt {attempt['attempt']}", bold=True)
    click.echo(f"{title}  {output.coloured(attempt['status'])} in {took}")
    show_words(attempt)
    if attempt["result"] is not None:
        output.section("response", output.value(attempt["result"]))


def show_words(attempt: Row) -> None:
    """What an attempt said: its error, its log lines, and stdout where that was no response."""
    if attempt["last_error"]:
        output.section("error", attempt["last_error"])
    lines = attempt["logs"] if isinstance(attempt["logs"], list) else []
    if lines:
        output.section("logs", "\n".join(f"{x['level']:<5} {x['message']}" for x in lines))
    for stream in ("stdout", "stderr"):
        if attempt[stream]:
            output.section(stream, attempt[stream])
