"""A full-screen terminal, restored afterwards."""

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
"""The alternate screen, cleared, without a cursor."""
LEAVE = "\x1b[?25h\x1b[?1049l"
DEFAULT_SIZE = (80, 24)
"""For a terminal that does not report its size."""
HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[2K", "\x1b[J"


class TerminalScreen:
    """A context manager: keys are read one by one and not echoed.

    The terminal is restored after a return, an exception, Ctrl-C or SIGTERM.
    """

    def __init__(self, keyboard: int, output: int) -> None:
        self.keyboard = keyboard
        self._output = output
        self.resized, self._resize = os.pipe()
        os.set_blocking(self._resize, False)
        os.set_blocking(self.resized, False)
        self._shown: list[str] = []

    def __enter__(self) -> TerminalScreen:
        self._attributes = termios.tcgetattr(self.keyboard)
        self._handlers = {
            signal.SIGWINCH: signal.signal(signal.SIGWINCH, self._on_resize),
            signal.SIGTERM: signal.signal(signal.SIGTERM, terminate),
        }
        try:
            tty.setcbreak(self.keyboard, termios.TCSADRAIN)
            self._disable_suspend()
            self._write(ENTER)
        except BaseException:
            self._restore()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        # A terminal that has been closed needs no restoring.
        with suppress(OSError, termios.error):
            self._write(LEAVE)
            termios.tcsetattr(self.keyboard, termios.TCSADRAIN, self._attributes)
        os.close(self._resize)
        os.close(self.resized)

    def _disable_suspend(self) -> None:
        """Disable Ctrl-Z, which would leave the alternate screen to the shell."""
        attributes: list[Any] = termios.tcgetattr(self.keyboard)
        attributes[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self.keyboard, termios.TCSADRAIN, attributes)

    def _on_resize(self, _signal: int, _frame: FrameType | None) -> None:
        with suppress(BlockingIOError):
            os.write(self._resize, b"\n")

    def size(self) -> tuple[int, int]:
        """Return the columns and lines."""
        width, height = os.get_terminal_size(self._output)
        return width or DEFAULT_SIZE[0], height or DEFAULT_SIZE[1]

    def read_keys(self) -> set[str]:
        """Return the keys typed since the last call."""
        return set(os.read(self.keyboard, 1024).decode(errors="replace"))

    def redraw(self) -> None:
        """Clear the screen after a change of its size, so that the next frame is drawn whole."""
        os.read(self.resized, 4096)
        self._shown = []
        self._write("\x1b[2J")

    def show(self, lines: list[str]) -> None:
        """Replace the lines on the screen; write nothing if they are the same."""
        if lines == self._shown:
            return
        self._shown = lines
        # Cleared before it is written: after a full line the cursor is on its last cell.
        text = HOME + "\n".join(CLEAR_LINE + line for line in lines)
        self._write(text + ("\n" + CLEAR_BELOW if len(lines) < self.size()[1] else ""))

    def _write(self, text: str) -> None:
        data = text.encode(errors="replace")
        while data:
            data = data[os.write(self._output, data) :]
