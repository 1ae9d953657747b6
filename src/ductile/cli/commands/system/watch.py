"""`ductile system watch`: a gateway at work, live in a terminal.

Events wake it; it asks for the page when something has happened, and seldom otherwise.
Between that it only lets the times on the screen go on.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from contextlib import closing, suppress
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import click

from ductile.cli.client import SILENCE, Client
from ductile.cli.command import CommandContext
from ductile.cli.commands.system.gateway import system
from ductile.cli.commands.system.watch_frame import frame, painted
from ductile.errors import NotRunning

if TYPE_CHECKING:
    from ductile.cli.commands.system.watch_screen import Screen

AT_LEAST = 0.25
"""Seconds between two questions, however much happens."""
AT_MOST = 15.0
"""Seconds between two questions while nothing does."""
TICK = 1.0
RECONNECT = 1.0
WIDTH = 100
QUIT = frozenset({"q", "Q"})


@system.read("watch")
@click.option("--once", is_flag=True, help="Print one frame and exit (always without a terminal).")
def watch(call: CommandContext, once: bool) -> None:
    """Watch the gateway live; `q` quits.

    Shows running and queued jobs, recent failures, open breakers and the next schedules.
    """
    if once or call.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        with call.site.reading() as door:
            page = door.get("/system/overview")
        call.show(page, _print)
        return
    from ductile.cli.commands.system.watch_screen import Screen
    from ductile.cli.target import SOCKET

    client = call.site.client() or Client(call.site.state_dir / SOCKET)
    with Screen(sys.stdin.fileno(), sys.stdout.fileno()) as screen:
        Watch(client, screen).run()


def _print(page: dict[str, Any]) -> None:
    wide = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if wide else WIDTH
    for line in frame(page, width=width, height=None, elapsed=0.0):
        click.echo(painted(line) if wide else "".join(text for text, _ in line).rstrip())


class Watch:
    """The page, asked for when events say so, on a screen."""

    def __init__(self, client: Client, screen: Screen) -> None:
        self._client, self._screen = client, screen
        self._page: dict[str, Any] | None = None
        self._asked_at = float("-inf")
        self._trouble: str | None = None
        self._news = threading.Event()
        self._news.set()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)

    def run(self) -> None:
        """Until `q`, Ctrl-C or SIGTERM."""
        threading.Thread(target=self._follow, daemon=True).start()
        while True:
            self._ask_if_due()
            self._draw()
            inputs = [self._screen.keyboard, self._screen.resized, self._wake_out]
            ready, _, _ = select.select(inputs, [], [], self._patience())
            if self._screen.keyboard in ready and self._screen.keys() & QUIT:
                return
            if self._screen.resized in ready:
                self._screen.forget()
            if self._wake_out in ready:
                os.read(self._wake_out, 4096)

    def _ask_if_due(self) -> None:
        waited = time.monotonic() - self._asked_at
        if not (waited >= AT_MOST or (self._news.is_set() and waited >= AT_LEAST)):
            return
        self._news.clear()
        try:
            self._page, self._trouble = self._client.get("/system/overview"), None
        except NotRunning:
            self._trouble = "no gateway responds; waiting for one"
        self._asked_at = time.monotonic()

    def _patience(self) -> float:
        since = time.monotonic() - self._asked_at
        return max(AT_LEAST - since, 0.0) if self._news.is_set() else TICK

    def _draw(self) -> None:
        width, height = self._screen.size()
        elapsed = time.monotonic() - self._asked_at
        lines = frame(self._page, width=width, height=height, elapsed=elapsed, note=self._trouble)
        self._screen.show([painted(line) for line in lines])

    def _follow(self) -> None:
        """In a thread of its own: something has happened, or a gateway has come back."""
        while True:
            connection = self._client.connect()
            connection.timeout = SILENCE
            # Whatever it is that fails, the next page shows it.
            with suppress(OSError, HTTPException), closing(connection):
                connection.request("GET", "/events", headers=dict(self._client.headers))
                for line in connection.getresponse():
                    if line.startswith((b"data:", b": following")):
                        self._wake()
            self._wake()
            time.sleep(RECONNECT)

    def _wake(self) -> None:
        self._news.set()
        with suppress(BlockingIOError):
            os.write(self._wake_in, b"\n")
