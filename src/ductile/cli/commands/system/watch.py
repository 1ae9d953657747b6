"""`ductile system watch`: a live view of the gateway in a terminal.

An overview is requested after events, while jobs run, and otherwise seldom. Between two requests
only the times on the screen are updated.
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

from ductile.cli.client import STREAM_TIMEOUT, GatewayClient
from ductile.cli.command import CommandContext, read
from ductile.cli.commands.system.watch_frame import frame, paint
from ductile.errors import NotRunning

if TYPE_CHECKING:
    from ductile.cli.commands.system.terminal import TerminalScreen

MIN_INTERVAL = 0.25
"""Seconds between two requests, with any number of events."""
MAX_INTERVAL = 15.0
"""Seconds between two requests without events."""
PROGRESS_INTERVAL = 2.0
"""Seconds between two requests while jobs run: progress is not an event."""
TICK = 1.0
RECONNECT_DELAY = 1.0
DEFAULT_WIDTH = 100
QUIT = frozenset({"q", "Q"})


@read("watch")
@click.option("--once", is_flag=True, help="Print one frame and exit (always without a terminal).")
def watch(context: CommandContext, once: bool) -> None:
    """Watch the gateway live; `q` quits.

    Shows running and queued jobs, recent failures, open breakers and the next schedules.
    """
    if once or context.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        context.show(context.get("/system/overview"), _print_frame)
        return
    from ductile.cli.commands.system.terminal import TerminalScreen
    from ductile.engine.socket_path import SOCKET

    client = context.target.client() or GatewayClient(context.target.state_dir / SOCKET)
    with TerminalScreen(sys.stdin.fileno(), sys.stdout.fileno()) as screen:
        WatchLoop(client, screen).run()


def _print_frame(page: dict[str, Any]) -> None:
    is_terminal = sys.stdout.isatty()
    width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal else DEFAULT_WIDTH
    for line in frame(page, width=width, height=None, elapsed=0.0):
        click.echo(paint(line) if is_terminal else "".join(text for text, _ in line).rstrip())


class WatchLoop:
    """Requests the overview after events, and draws it."""

    def __init__(self, client: GatewayClient, screen: TerminalScreen) -> None:
        self._client, self._screen = client, screen
        self._page: dict[str, Any] | None = None
        self._requested_at = float("-inf")
        self._error: str | None = None
        self._has_events = threading.Event()
        self._has_events.set()
        self._wake_out, self._wake_in = os.pipe()
        os.set_blocking(self._wake_in, False)
        os.set_blocking(self._wake_out, False)

    def run(self) -> None:
        """Run until `q`, Ctrl-C or SIGTERM."""
        threading.Thread(target=self._follow_events, daemon=True).start()
        while True:
            self._refresh_if_due()
            self._draw()
            inputs = [self._screen.keyboard, self._screen.resized, self._wake_out]
            ready, _, _ = select.select(inputs, [], [], self._select_timeout())
            if self._screen.keyboard in ready and self._screen.read_keys() & QUIT:
                return
            if self._screen.resized in ready:
                self._screen.redraw()
            if self._wake_out in ready:
                os.read(self._wake_out, 4096)

    def _refresh_if_due(self) -> None:
        waited = time.monotonic() - self._requested_at
        runs_jobs = self._page is not None and bool(self._page["running"])
        longest = PROGRESS_INTERVAL if runs_jobs else MAX_INTERVAL
        if not (waited >= longest or (self._has_events.is_set() and waited >= MIN_INTERVAL)):
            return
        self._has_events.clear()
        try:
            self._page, self._error = self._client.get("/system/overview"), None
        except NotRunning:
            self._error = "no gateway responds; waiting for one"
        self._requested_at = time.monotonic()

    def _select_timeout(self) -> float:
        since = time.monotonic() - self._requested_at
        return max(MIN_INTERVAL - since, 0.0) if self._has_events.is_set() else TICK

    def _draw(self) -> None:
        width, height = self._screen.size()
        elapsed = time.monotonic() - self._requested_at
        lines = frame(self._page, width=width, height=height, elapsed=elapsed, note=self._error)
        self._screen.show([paint(line) for line in lines])

    def _follow_events(self) -> None:
        """Wake the loop after each event and each reconnection; runs in its own thread."""
        while True:
            connection = self._client.connect()
            connection.timeout = STREAM_TIMEOUT
            # The next request shows the error.
            with suppress(OSError, HTTPException), closing(connection):
                connection.request("GET", "/events", headers=dict(self._client.headers))
                for line in connection.getresponse():
                    if line.startswith((b"data:", b": following")):
                        self._wake()
            self._wake()
            time.sleep(RECONNECT_DELAY)

    def _wake(self) -> None:
        self._has_events.set()
        with suppress(BlockingIOError):
            os.write(self._wake_in, b"\n")
