"""A terminal that is ours for a while, and afterwards as it was."""

from __future__ import annotations

import os
import signal
import termios
import tty
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

from ductile.cli.errors import terminate

ENTER = "\x1b[?1049h\x1b[?25l\x1b[2J"
"""The other screen, without a cursor, empty."""
LEAVE = "\x1b[?25h\x1b[?1049l"
USUAL = (80, 24)
"""For a terminal that does not say how large it is."""
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[2K", "\x1b[J"


class Screen:
    """Between `with` and its end: keys come one by one, and nothing is echoed.

    Whatever ends it (a return, an exception, Ctrl-C, SIGTERM), the terminal is given back.
    """

    def __init__(self, keyboard: int, output: int) -> None:
        self.keyboard = keyboard
        self._output = output
        self.resized, self._resize = os.pipe()
        os.set_blocking(self._resize, False)
        os.set_blocking(self.resized, False)
        self._shown: list[str] = []

    def __enter__(self) -> Screen:
        self._before = termios.tcgetattr(self.keyboard)
        self._handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._on_resize),
            signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
        }
        try:
            tty.setcbreak(self.keyboard, termios.TCSADRAIN)
            self._forbid_suspending()
            self._write(ENTER)
        except BaseException:
            self._give_back()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # Where the terminal is gone, nobody is left to miss it.
        with suppress(OSError, termios.error):
            self._write(LEAVE)
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._before)
        os.close(self._resize)
        os.close(self.resized)

    def _forbid_suspending(self) -> None:
        """A stop by Ctrl-Z would leave the shell with our screen."""
        attributes: list[Any] = termios.tcgetattr(self.keyboard)
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, attributes)

    def _on_resize(self, _signal: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._resize, b"\n")

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        width, height = os.get_terminal_size(self._output)
        return width or USUAL[0], height or USUAL[1]

    def keys(self) -> set[str]:
        """What was typed since the last look."""
        return set(os.read(self.keyboard, 1024).decode(errors="replace"))

    def forget(self) -> None:
        """The size has changed: what is shown is not where it was."""
        os.read(self.resized, 4096)
        self._shown = []
        self._write("\x1b[2J")

    def show(self, lines: list[str]) -> None:
        """Replace what is shown; nothing is written where nothing has changed."""
        if lines == self._shown:
            return
        self._shown = lines
        # Cleared before it is written: after a full line the cursor stands on its last cell.
        text = HOME + "\n".join(CLEAR_LINE + line for line in lines)
        self._write(text + ("\n" + CLEAR_BELOW if len(lines) < self.size()[1] else ""))

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._output, data) :]
