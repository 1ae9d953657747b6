"""One frame of `system watch`: an overview as lines that fit a terminal. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from unicodedata import combining, east_asian_width

import click

from ductile.cli import output
from ductile.cli.display import format_progress
from ductile.clock import from_text

Line = list[tuple[str, str | None]]
"""Parts of a line, each with its colour or None."""
GAP = "  "
DIM = "bright_black"


def frame(
    page: Mapping[str, Any] | None,
    *,
    width: int,
    height: int | None,
    elapsed: float,
    note: str | None = None,
) -> list[Line]:
    """Return the lines of an overview that was requested `elapsed` seconds ago."""
    if page is None:
        text = output.escape(note or "connecting to the gateway")
        return [_clip([(text, "yellow")], width)]
    now = from_text(page["at"]) + timedelta(seconds=elapsed)
    lines = _head(page, elapsed, note)
    sections = [section for section in _sections(page, now, elapsed) if section[1]]
    room = None if height is None else max(height - len(lines) - 2 * len(sections), 0)
    for (title, rows), shown in zip(sections, _rows_per_section(sections, room), strict=True):
        lines.append([])
        lines.append([(title, "bold")])
        lines += _table(rows[:shown])
    if height is not None:
        lines = lines[:height]
    return [
        _clip([(output.escape(text), colour) for text, colour in line], width) for line in lines
    ]


def _head(page: Mapping[str, Any], elapsed: float, note: str | None) -> list[Line]:
    if page["running_gateway"]:
        up = output.format_duration(page["uptime_seconds"] + elapsed)
        workers, plugins = (output.format_count(page[k], k[:-1]) for k in ("workers", "plugins"))
        state: Line = [(f"{page['name']}", "bold"), (f"  up {up}, {workers}, {plugins}", None)]
    else:
        state = [(f"{page['name']}  no gateway is running; showing the state on disk", "yellow")]
    queue = page["queue"]
    jobs: Line = [
        (f"{queue['running']} running", "cyan" if queue["running"] else None),
        (f", {queue['ready']} queued, {queue['retrying']} to be retried", None),
    ]
    if queue["approvals"]:
        waiting = output.format_count(queue["approvals"], "approval")
        jobs.append((f", {waiting} to decide", "yellow"))
    notes: list[Line] = [[(note, "yellow")]] if note else []
    return [state, jobs, *notes]


Row = list[tuple[str, str | None]]


def _sections(
    page: Mapping[str, Any], now: datetime, elapsed: float
) -> list[tuple[str, list[Row]]]:
    return [
        ("RUNNING", [_running(job, now, elapsed) for job in page["running"]]),
        ("QUEUED", [_queued(row, page["held"]) for row in page["waiting"]]),
        ("RECENT FAILURES", [_failed(row, now) for row in page["failures"]]),
        ("BREAKERS", [_breaker(row, now) for row in page["breakers"]]),
        ("NEXT", [_upcoming(row, now) for row in page["next"]]),
    ]


def _running(job: Mapping[str, Any], now: datetime, elapsed: float) -> Row:
    step = f"{job['pipeline']}/{job['step']}" if job["pipeline"] else ""
    attempt = f"attempt {job['attempt']}" if job["attempt"] > 1 else ""
    ran = _ago(job["started_at"], now)
    what = (f"{job['plugin']} {job['command']}", "cyan")
    progress = (format_progress(job.get("progress"), elapsed), "green")
    return [(ran, None), what, (step, None), (attempt, None), progress, (job["job_id"], DIM)]


def _queued(row: Mapping[str, Any], held: Mapping[str, str]) -> Row:
    why = held.get(row["plugin"])
    return [(str(row["jobs"]), None), (row["plugin"], None), (why or "", "yellow")]


def _failed(row: Mapping[str, Any], now: datetime) -> Row:
    what = (f"{row['plugin']} {row['command']}", None)
    status = (row["status"], output.colour_of(row["status"]))
    return [(_ago(row["completed_at"], now), None), what, status, (row["error"] or "", None)]


def _breaker(row: Mapping[str, Any], now: datetime) -> Row:
    what = (f"{row['plugin']} {row['command']}", None)
    failures = output.format_count(row["failure_count"], "failure")
    return [(_ago(row["opened_at"], now), None), what, (row["state"], "red"), (failures, None)]


def _upcoming(row: Mapping[str, Any], now: datetime) -> Row:
    left = (from_text(row["next_run"]) - now).total_seconds()
    due = f"in {output.format_whole_seconds(left)}" if left > 0 else "now"
    state = "" if row["state"] == "active" else row["state"]
    name = f"{row['plugin']}/{row['schedule']}"
    return [(due, None), (name, None), (row["rule"], DIM), (state, "yellow")]


def _ago(moment: str | None, now: datetime) -> str:
    return (
        "-"
        if moment is None
        else output.format_whole_seconds((now - from_text(moment)).total_seconds())
    )


def _rows_per_section(sections: Sequence[tuple[str, list[Row]]], room: int | None) -> list[int]:
    """Share the room among the sections, one row each in turn."""
    counts = [0] * len(sections)
    left = sum(len(rows) for _, rows in sections)
    room = left if room is None else min(room, left)
    while room > 0:
        for index, (_, rows) in enumerate(sections):
            if counts[index] < len(rows) and room > 0:
                counts[index] += 1
                room -= 1
    return counts


def _table(rows: list[Row]) -> list[Line]:
    clean = [[(_clean(text), colour) for text, colour in row] for row in rows]
    widths = [max((cells(row[n][0]) for row in clean), default=0) for n in range(_columns(clean))]
    return [
        [
            (text + " " * (width - cells(text)) + (GAP if width else ""), colour)
            for (text, colour), width in zip(row, widths, strict=True)
        ]
        for row in clean
    ]


def _columns(rows: list[Row]) -> int:
    return len(rows[0]) if rows else 0


def _clean(text: str) -> str:
    return output.escape(" ".join(text.split()))


def cells(text: str) -> int:
    """Return the number of terminal columns that the text occupies."""
    return sum(map(_width, text))


def _width(character: str) -> int:
    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def _clip(line: Line, width: int) -> Line:
    """Cut the line to the width, with an ellipsis."""
    if cells("".join(text for text, _ in line).rstrip()) <= width:
        return line
    parts: Line = []
    room = width - 1
    for text, colour in line:
        part = ""
        for character in text:
            if room < _width(character):
                return [*parts, (f"{part}…", colour)]
            part += character
            room -= _width(character)
        parts.append((part, colour))
    return parts


def paint(line: Line) -> str:
    """Return the line with its colours, for a terminal."""
    return "".join(
        click.style(text, bold=True) if colour == "bold" else click.style(text, fg=colour)
        for text, colour in line
    )
