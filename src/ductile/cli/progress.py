"""Progress of a long command, on one line of the terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from ductile.cli import output
from ductile.cli.errors import sigterm_as_interrupt

SILENCE = 1.0
"""Seconds after which a command says what it waits for."""
MIN_INTERVAL = 0.1
"""Seconds between two updates of the line with the same text before its figures."""

Report = Callable[[str, int, int], None]
"""Receives what is being done, how much of it is done, and the total; 0 if it is not known."""


@contextmanager
def interruptible(note: str) -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C in the block, and print `note` to stderr for either."""
    with sigterm_as_interrupt():
        try:
            yield
        except KeyboardInterrupt:
            output.print_stderr(f"interrupted; {note}")
            raise


@contextmanager
def show_waiting(what: str, *, quiet: bool = True) -> Iterator[None]:
    """After a second, show what the block waits for: on a terminal with the seconds that pass.

    Elsewhere it is shown once; not at all if `quiet`.
    """
    done = threading.Event()

    def show() -> None:
        started = time.monotonic()
        if done.wait(SILENCE):
            return
        if not sys.stderr.isatty():
            if not quiet:
                output.print_stderr(what)
            return
        with show_progress() as report:
            while not done.wait(MIN_INTERVAL):
                report(f"{what}, {time.monotonic() - started:.0f} s", 0, 0)

    thread = threading.Thread(target=show, name="waiting", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def show_progress() -> Iterator[Report]:
    """Yield a function that updates the line; nothing is shown if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _total: None
        return
    line = _ProgressLine()
    try:
        yield line.update
    finally:
        line.clear()


class _ProgressLine:
    def __init__(self) -> None:
        self._shown_at, self._what = 0.0, ""

    def update(self, what: str, done: int, total: int) -> None:
        now = time.monotonic()
        if what.split() == self._what.split() and now - self._shown_at < MIN_INTERVAL:
            return
        self._shown_at, self._what = now, what
        percent = f" {100 * min(done, total) // total}%" if total else ""
        click.echo(f"\r\x1b[K{what}{percent}", err=True, nl=False)

    def clear(self) -> None:
        click.echo("\r\x1b[K", err=True, nl=False)
