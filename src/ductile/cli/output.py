"""Print results: tables and text for people, JSON for programs, colours on terminals only."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import click

from ductile.core.values.terminal import escape_controls, escape_json, escape_line

_COLOURS = {
    **dict.fromkeys(("succeeded", "ready", "healthy", "ok", "active", "closed"), "green"),
    **dict.fromkeys(("failed", "timed_out", "dead", "refused", "unhealthy", "error"), "red"),
    **dict.fromkeys(("breaker_open", "breaker_half_open", "half_open"), "red"),
    **dict.fromkeys(("queued", "warn", "warning", "shadowed", "paused", "not fired"), "yellow"),
    **dict.fromkeys(("running",), "cyan"),
    **dict.fromkeys(("skipped", "disabled", "debug", "exhausted"), "bright_black"),
}
_GAP = "  "
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-(\d\d-\d\d) (\d\d:\d\d):\d\d")
_LEDGER_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z")
_NOTHING = "-"
ID_END = 12
"""Characters of a job id in a table that is too wide; commands accept them in place of the id."""
MIN_COLUMN = 8
"""Characters of the last column that must fit, so that it is shown in part."""
NOTES = frozenset({"note", "reason", "why"})
"""Last columns that are printed below their row where they do not fit: their end is the cause."""
NOTE_LINES = 2


def print_json(value: Any) -> None:
    """Print a JSON document to stdout."""
    import json

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    text = json.dumps(value, indent=2, ensure_ascii=encoding != "utf8", default=str)
    click.echo(escape_json(text))


def print_line(text: str = "", **style: Any) -> None:
    """Print one line: a newline within the text is escaped."""
    click.echo(_styled(text, style))


def print_stderr(text: str, **style: Any) -> None:
    """Print a note, a warning or an error on one line; stdout is for the result."""
    click.echo(_styled(text, style), err=True)


def print_error(text: str, *, err: bool = False) -> None:
    """Print an error: of several lines, all but the first are indented."""
    shown = escape_controls(text.rstrip("\n").replace("\n", f"\n{_GAP}"))
    click.echo(click.style(shown, fg="red"), err=err)


def print_text(text: str, *, err: bool = False) -> None:
    """Print text that may have several lines."""
    click.echo(escape_controls(text), err=err)


def _styled(text: str, style: Mapping[str, Any]) -> str:
    line = escape(text.rstrip("\n"))
    return click.style(line, **style) if style else line


def escape(text: str) -> str:
    """Text from plugins, files or callers as one line, without what a terminal would obey."""
    return escape_line(text)


def clip(text: str, max_length: int) -> str:
    """Join the text to one line, and cut it to `max_length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= max_length else f"{line[: max_length - 1]}…"


def clip_middle(text: str, max_length: int) -> str:
    """As `clip`, with more of the end than of the start: an error ends with its cause."""
    line = " ".join(text.split())
    if len(line) <= max_length:
        return line
    head = (max_length - 3) // 3
    return f"{line[:head]} … {line[len(line) - (max_length - 3 - head) :]}"


def colour_of(word: str) -> str | None:
    """Return the colour of a state or a severity."""
    return _COLOURS.get(word)


def format_status(word: str) -> str:
    return click.style(escape(word), fg=colour_of(word))


_Cells = list[list[str]]


Column = str | Callable[[Any], object]
"""The key of a value in a row, or a function of the row."""


def print_table(
    rows: Iterable[Any], columns: Mapping[str, Column], *, empty: str = "no rows"
) -> None:
    """Print the columns, given by their headings, as wide as their content.

    On a terminal that is too narrow, columns without a value are left out, job ids are shortened to
    their ends, which differ also between jobs of the same run, and times lose what all share or few
    need. Then notes are printed below their rows, lines are cut, and the columns that are not shown
    are named.
    """
    headings: Sequence[str] = list(columns)
    readers = [itemgetter(key) if isinstance(key, str) else key for key in columns.values()]
    cells = [[_cell(read(row)) for read in readers] for row in rows]
    if not cells:
        print_line(empty)
        return
    edge = _terminal_width()
    widths = _widths(headings, cells)
    for make_narrower in (_leave_out_empty, _shorten_ids, _shorten_times):
        if edge is not None and _line_length(widths) > edge:
            headings, cells = make_narrower(headings, cells)
            widths = _widths(headings, cells)
    notes = [""] * len(cells)
    if edge is not None and _line_length(widths) > edge and headings[-1] in NOTES:
        notes = [row[-1] if row[-1] != _NOTHING else "" for row in cells]
        headings, cells = headings[:-1], [row[:-1] for row in cells]
        widths = widths[:-1]
    shown = _count_columns(widths, edge)
    dropped = [*headings[shown:]]
    titles = [heading.upper() for heading in headings[:shown]]
    click.echo(_row(titles, widths[:shown], edge, heading=True) + (f"{_GAP}…" if dropped else ""))
    for row, note in zip(cells, notes, strict=True):
        click.echo(_row(row[:shown], widths[:shown], edge))
        if note and edge is not None:
            _print_note(note, edge)
    if dropped:
        click.echo(f"not shown: {', '.join(dropped)} (widen the terminal, or use --json)", err=True)


def _print_note(note: str, edge: int) -> None:
    from textwrap import wrap

    width = max(edge - len(_GAP), MIN_COLUMN)
    # Words that do not fit leave room at the end of each line but the last.
    for line in wrap(clip_middle(note, NOTE_LINES * width - width // 4), width)[: NOTE_LINES + 1]:
        click.echo(f"{_GAP}{line}")


def _widths(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(headings, *cells, strict=True)]


def _line_length(widths: Sequence[int]) -> int:
    return sum(widths) + len(_GAP) * (len(widths) - 1)


def _leave_out_empty(headings: Sequence[str], cells: _Cells) -> tuple[Sequence[str], _Cells]:
    kept = [i for i, column in enumerate(zip(*cells, strict=True)) if set(column) != {_NOTHING}]
    return [headings[i] for i in kept], [[row[i] for i in kept] for row in cells]


def _shorten_ids(headings: Sequence[str], cells: _Cells) -> tuple[Sequence[str], _Cells]:
    return headings, [
        [f"…{cell[-ID_END:]}" if _ID.fullmatch(cell) else cell for cell in row] for row in cells
    ]


def _shorten_times(headings: Sequence[str], cells: _Cells) -> tuple[Sequence[str], _Cells]:
    """Leave out the date if all times are of today, otherwise the year and the seconds."""
    from ductile.clock import SystemClock

    today = f"{SystemClock().now().astimezone():%Y-%m-%d}"
    times = [cell for row in cells for cell in row if _TIME.fullmatch(cell)]
    is_today = all(cell.startswith(today) for cell in times)

    def shorten(cell: str) -> str:
        if not (found := _TIME.fullmatch(cell)):
            return cell
        return cell[len(today) + 1 :] if is_today else f"{found[1]} {found[2]}"

    return headings, [[shorten(cell) for cell in row] for row in cells]


def _count_columns(widths: Sequence[int], edge: int | None) -> int:
    """The number of columns with room for their content, or for the start of the last one."""
    if edge is None or _line_length(widths) <= edge:
        return len(widths)
    fits = [
        index
        for index, width in enumerate(widths)
        if _line_length(widths[:index]) + len(_GAP) + min(width, MIN_COLUMN) <= edge
    ]
    if len(fits) == len(widths):
        return len(widths)
    # The mark behind the last heading needs room, too.
    room = edge - len(_GAP) - 1
    return max(1, sum(_line_length(widths[: index + 1]) <= room for index in fits))


def _terminal_width() -> int | None:
    from shutil import get_terminal_size

    return get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: object) -> str:
    text = _NOTHING if value is None or value == "" else str(value)
    return escape(" ".join(text.split()))


def _row(
    cells: Sequence[str], widths: Sequence[int], edge: int | None, *, heading: bool = False
) -> str:
    shown, used = [], 0
    for index, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = cell if index == len(cells) - 1 else cell.ljust(width)
        if edge is not None and used + len(text) > edge:
            text = f"{text[: max(edge - used - 1, 0)]}…" if used < edge else ""
        used += len(text) + len(_GAP)
        colour = colour_of(cell)
        styled = heading or colour is not None
        shown.append(click.style(text, fg=colour, bold=heading or None) if styled else text)
    return _GAP.join(shown).rstrip()


def print_section(title: str, text: str) -> None:
    """Print a title, and the text indented below it."""
    print_line(title, bold=True)
    for part in escape_controls(text).rstrip("\n").split("\n"):
        click.echo(f"  {part}".rstrip())


def print_diff(text: str) -> None:
    """Print a unified diff."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for part in text.splitlines():
        marks = part.startswith(("+++", "---"))
        print_line(part, fg=None if marks else colours.get(part[:1]), bold=True if marks else None)


def format_value(found: Any) -> str:
    """Format a JSON value for people: text as it is, anything else as JSON."""
    import json

    return found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)


def format_time(text: str | None) -> str:
    """Format a time of the ledger as local time; return text that is not a time as it is."""
    from ductile.clock import moment_of

    if text is None:
        return "-"
    moment = moment_of(text)
    return text if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def time_of(key: str) -> Column:
    """A column of times of the ledger, as local times."""
    return lambda row: format_time(row[key])


def format_times(text: str) -> str:
    """Replace the times of the ledger in a text with local times."""
    return _LEDGER_TIME.sub(lambda found: format_time(found[0]), text)


def format_duration(seconds: float) -> str:
    """Format a duration with one or two units: `15 ms`, `2.5 s`, `3h 20m`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    return " ".join([f"{count}{unit}" for count, unit in parts if count][:2])


def format_whole_seconds(seconds: float) -> str:
    """Format a duration without parts of a second, for output that is updated every second."""
    return f"{max(int(seconds), 0)} s" if seconds < 60 else format_duration(seconds)


def format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_size(count: int) -> str:
    """Format a number of bytes with a binary unit."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
