"""How answers look: tables for people, JSON for programs, colours on a terminal alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

_COLOURS = {
    **dict.fromkeys(("succeeded", "ready", "healthy", "ok", "active", "closed"), "green"),
    **dict.fromkeys(("failed", "timed_out", "dead", "refused", "unhealthy", "error"), "red"),
    **dict.fromkeys(("breaker_open", "breaker_half_open", "half_open"), "red"),
    **dict.fromkeys(("queued", "warn", "warning", "shadowed", "paused", "not fired"), "yellow"),
    **dict.fromkeys(("running",), "cyan"),
    **dict.fromkeys(("skipped", "disabled", "debug", "exhausted"), "bright_black"),
}
_CONTROLS = {
    code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) not in "\t\n"
}
_GAP = "  "
MOMENT = 1.0


def document(value: Any) -> None:
    """JSON, for programs."""
    import json

    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    click.echo(json.dumps(value, indent=2, ensure_ascii=encoding != "utf8", default=str))


def line(text: str = "", **style: Any) -> None:
    click.echo(click.style(safe(text), **style) if style else safe(text))


def aside(text: str, **style: Any) -> None:
    """A remark on stderr, out of the way of the answer."""
    click.echo(click.style(safe(text), **style) if style else safe(text), err=True)


def safe(text: str) -> str:
    """Text of a plugin or a file, with nothing in it that commands a terminal."""
    return text.translate(_CONTROLS)


def clipped(text: str, most: int) -> str:
    """Somebody else's words as one line of at most so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def colour_of(word: str) -> str | None:
    """Of a state, or of how bad something is."""
    return _COLOURS.get(word)


def coloured(word: str) -> str:
    return click.style(safe(word), fg=colour_of(word))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str = "nothing"
) -> None:
    """Columns as wide as they need to be; on a terminal lines end at its edge."""
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells:
        click.echo(empty)
        return
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    edge = _edge()
    click.echo(_row([heading.upper() for heading in headings], widths, edge, heading=True))
    for row in cells:
        click.echo(_row(row, widths, edge))


def _edge() -> int | None:
    from shutil import get_terminal_size

    return get_terminal_size().columns if sys.stdout.isatty() else None


def _cell(value: object) -> str:
    text = "-" if value is None or value == "" else str(value)
    return safe(" ".join(text.split()))


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


def section(title: str, text: str) -> None:
    """A titled block, its text indented."""
    click.echo(click.style(title, bold=True))
    for part in safe(text).rstrip("\n").split("\n"):
        click.echo(f"  {part}".rstrip())


@contextmanager
def working(text: str) -> Iterator[None]:
    """Say on a terminal that something goes on, once it takes longer than a moment."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Event, Thread
    from time import monotonic

    ended, began = Event(), monotonic()

    def tell() -> None:
        while not ended.wait(MOMENT):
            click.echo(f"\r{safe(text)} … {monotonic() - began:.0f} s", nl=False, err=True)

    teller = Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if monotonic() - began >= MOMENT:
            click.echo("\r\x1b[K", nl=False, err=True)


def difference(text: str) -> None:
    """A unified diff."""
    colours = {"+": "green", "-": "red", "@": "cyan"}
    for part in text.splitlines():
        marks = part.startswith(("+++", "---"))
        line(part, fg=None if marks else colours.get(part[:1]), bold=True if marks else None)


def value(found: Any) -> str:
    """A JSON value for people: text as it is, the rest as JSON."""
    import json

    return found if isinstance(found, str) else json.dumps(found, indent=2, ensure_ascii=False)


def when(text: str | None) -> str:
    """A moment of the ledger in local time; what a script wrote that is none, as it stands."""
    from ductile.clock import moment_of

    if text is None:
        return "-"
    moment = moment_of(text)
    return text if moment is None else f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


def span(seconds: float) -> str:
    """How long something took or takes."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "m"), (rest, "s"))
    return " ".join([f"{count}{unit}" for count, unit in parts if count][:2])


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def size(count: int) -> str:
    """Bytes, for people."""
    amount = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024 or unit == "GiB":
            break
        amount /= 1024
    return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
